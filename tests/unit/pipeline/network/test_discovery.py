"""Discovery: of which queues a group's offsets are asked for and committed."""

from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.rules import read_rules
from rockhopper.pipeline.remote import LogPasts

ROUTED, LEFT, GONE = (MessageQueue("t", "a", number) for number in range(3))


class Brokers:
    """They hold two queues, one of which the topic has left; its group stands at 3 in each."""

    def __init__(self) -> None:
        self.committed_offsets: dict[MessageQueue, int] = {}

    def ranges(
        self, queues: list[MessageQueue], *, with_left: bool
    ) -> dict[MessageQueue, tuple[int, int]]:
        assert queues == [ROUTED]
        return {ROUTED: (0, 5), LEFT: (0, 9)} if with_left else {ROUTED: (0, 5)}

    def commit(self, group: str, offsets: dict[MessageQueue, int]) -> None:
        assert group == "g"
        self.committed_offsets |= offsets

    def committed(self, group: str, queues: list[MessageQueue]) -> dict[MessageQueue, int | None]:
        return dict.fromkeys(queues, 3)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def discovery(brokers: Brokers, monkeypatch: pytest.MonkeyPatch, **options: str) -> Discovery:
    given = {"nameServer": "ns", "groupId": "g", "commitOffsets": "onBatch"} | options
    found = Discovery(read_rules(given, streaming=True))

    def queues(in_use: Any = ()) -> list[MessageQueue]:
        found._queues = [ROUTED]
        return [ROUTED]

    monkeypatch.setattr(Discovery, "remote", brokers)
    monkeypatch.setattr(found, "queues", queues)
    return found


def test_offsets_of_queues_that_a_topic_has_left_are_committed(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = discovery(brokers, monkeypatch, subscribe="t")
    found.ranges()
    found.commit({ROUTED: 5, LEFT: 9, GONE: 7})
    assert brokers.committed_offsets == {ROUTED: 5, LEFT: 9}
    assert found.committed([ROUTED, LEFT, GONE]) == {ROUTED: 3, LEFT: 3}


class Names:
    """A name server that knows queues of topics, and brokers without ids and histories."""

    def __init__(self, **topics: list[MessageQueue]) -> None:
        self.known = topics
        self.asked = 0

    def topics(self) -> list[str]:
        return list(self.known)

    def queues_of(self, topics: list[str]) -> dict[str, list[MessageQueue]]:
        self.asked += 1
        return {topic: self.known.get(topic, []) for topic in topics}

    def topic_ids(self, places: set[Any]) -> dict[Any, str]:
        return dict.fromkeys(places, "")

    def log_pasts(self, queues: Any, read_in: Any) -> LogPasts:
        return LogPasts({}, {})

    def gone(self, places: set[Any]) -> set[Any]:
        return places


def named(names: Names, monkeypatch: pytest.MonkeyPatch, **options: str) -> Discovery:
    monkeypatch.setattr(Discovery, "remote", names)
    given = {"nameServer": "ns", "fetchOffset.numRetries": "0"} | options
    return Discovery(read_rules(given, streaming=True), now_s=iter(range(9)).__next__)


def test_a_pattern_finds_topics_by_their_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(t=[ROUTED], t2=[LEFT], t22=[GONE])
    assert named(names, monkeypatch, subscribePattern="t.?").queues() == [ROUTED, LEFT]


def test_a_topic_that_does_not_exist_is_named_with_one_like_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(PipelineError, match=r"knows no topic 'order'.*orders"):
        named(Names(orders=[ROUTED]), monkeypatch, subscribe="order").queues()


def test_a_topic_in_use_that_went_is_left_out_only_if_data_may_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(PipelineError, match="set failOnDataLoss=false"):
        named(Names(), monkeypatch, subscribe="t").queues({("t", "a")})
    found = named(Names(), monkeypatch, subscribe="t", failOnDataLoss="false")
    assert found.queues({("t", "a")}) == []
    assert found.gone == {("t", "a")}


def test_routes_are_asked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(t=[ROUTED])
    found = named(names, monkeypatch, subscribe="t")
    found._now_s = iter((0.0, 0.5, 1.0)).__next__
    for _ in range(3):
        assert found.queues() == [ROUTED]
    assert names.asked == 2
