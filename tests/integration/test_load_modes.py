"""Each mode of the load generator against a broker of ours: every answer is right at any speed."""

import shutil
from collections.abc import Iterator

import pytest

from benchmarks import load, servers, topics
from benchmarks.cases import SETUPS, Case
from benchmarks.servers import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    """A broker with topics, and messages to be read."""
    with servers.rockhopper({}) as server:
        topics.spread(server.port, 16)
        for topic in (topics.TOPIC, topics.SQL_TOPIC):
            fill = Case("fill", "fill", "batch", topic=topic, with_property=True)
            load.run(fill, server.port, server.pid, 0.3, warm_up_s=0)
        yield server


@pytest.mark.parametrize(
    "case",
    [
        *(Case(mode, mode, mode) for mode in ("single", "binary", "v1", "oneway", "batch")),
        *(Case(mode, mode, mode) for mode in ("delay", "transaction", "commit", "pull", "pop")),
        *(Case(f"{mode}-1", mode, mode, messages_per_request=1) for mode in ("batch", "pull")),
        Case("sql", "sql", "sql", topic=topics.SQL_TOPIC),
        Case("longpull", "longpull", "longpull", topic=topics.WIDE_TOPIC),
        Case("topics", "topics", "single", topics=16, queues=1),
        Case("big", "bodies of 1 MiB", "single", body_size_bytes=1 << 20),
        Case("wide", "200 connections", "single", connections=200, in_flight=2),
        Case("paced", "paced", "single", rate_per_s=1000.0),
    ],
    ids=lambda case: case.name,
)
def test_every_answer_is_right(broker: Server, case: Case) -> None:
    sample = load.run(case, broker.port, broker.pid, 0.3, warm_up_s=0.1)
    assert sample.failures == {}
    assert sample.messages_per_s > 0


def test_a_paced_load_keeps_its_pace(broker: Server) -> None:
    case = Case("paced", "paced", "single", rate_per_s=500.0)
    sample = load.run(case, broker.port, broker.pid, 1.0, warm_up_s=0.1)
    assert sample.messages_per_s < 2 * case.rate_per_s


@pytest.mark.parametrize("mode", ["single", "v1", "batch"])
def test_signed_sends_are_accepted_of_the_user_that_may_send(mode: str) -> None:
    with servers.rockhopper(SETUPS["users"]) as server:
        topics.wait_until_dispatched(server.port, server.admin)
        case = Case("signed", "signed", mode, setup="users")
        assert load.run(case, server.port, server.pid, 0.3, warm_up_s=0.1).failures == {}
        unsigned = load.run(Case("open", "open", mode), server.port, server.pid, 0.3, warm_up_s=0)
        assert "not signed" in unsigned.refusal
