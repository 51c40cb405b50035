"""The readable queues of a topic over the cluster, from whoever knows them, for a few seconds."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.name_server.cluster_queues import ROUTE_AGE_S_MAX, ClusterQueues
from rockhopper.broker.settings.config_file import build_config
from tests.support.fake_server import FakeServer, route
from tests.support.peers import Clock


class Asked:
    """A broker with the topic "own", and a clock for how old a route is."""

    def __init__(self, root: Path, *addresses: str) -> None:
        settings = {"storePathRootDir": str(root), "brokerName": "me"}
        if addresses:
            settings["namesrvAddr"] = ";".join(addresses)
        config = build_config(settings)
        topics = TopicTable(root / "topics.json", config, now_ms=Clock())
        topics.put(TopicConfig("own", read_queue_nums=2))
        topics.put(TopicConfig("closed", read_queue_nums=2, perm=2))
        self.now_s = 0.0
        self.queues = ClusterQueues(config, topics, None, clock=lambda: self.now_s)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as made:
        made.serve_routes({"orders": route({"b": "x:1", "a": "x:2"}, queues=2)})
        yield made


async def test_queues_of_all_brokers_come_in_order(tmp_path: Path, server: FakeServer) -> None:
    asked = Asked(tmp_path, server.address)
    assert await asked.queues.find_queues("orders") == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    asked.queues.close()


async def test_an_answer_holds_for_some_seconds(tmp_path: Path, server: FakeServer) -> None:
    asked = Asked(tmp_path, server.address)
    for now_s, count in ((0.0, 1), (ROUTE_AGE_S_MAX - 0.1, 1), (ROUTE_AGE_S_MAX, 2)):
        asked.now_s = now_s
        await asked.queues.find_queues("orders")
        assert len(server.requests_of(105)) == count
    asked.queues.close()


async def test_the_next_name_service_is_asked_when_one_does_not_know(
    tmp_path: Path, server: FakeServer
) -> None:
    async with FakeServer() as other:
        other.serve_routes({})
        asked = Asked(tmp_path, "127.0.0.1:1", other.address, server.address)
        assert await asked.queues.find_queues("orders") == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert len(other.requests_of(105)) == 1
        asked.queues.close()


@pytest.mark.parametrize(
    ("topic", "queues"), [("own", [("me", 0), ("me", 1)]), ("closed", []), ("gone", None)]
)
@pytest.mark.parametrize("has_name_service", [True, False])
async def test_what_nobody_knows_is_looked_up_in_its_own_table(
    tmp_path: Path,
    server: FakeServer,
    topic: str,
    queues: list[tuple[str, int]] | None,
    has_name_service: bool,
) -> None:
    asked = Asked(tmp_path, *([server.address] if has_name_service else []))
    assert await asked.queues.find_queues(topic) == queues
    asked.queues.close()


async def test_a_topic_that_may_not_be_read_has_no_queues(
    tmp_path: Path, server: FakeServer
) -> None:
    server.serve_routes({"orders": route({"a": "x:1"}, queues=2, perm=2)})
    asked = Asked(tmp_path, server.address)
    assert await asked.queues.find_queues("orders") == []
    asked.queues.close()
