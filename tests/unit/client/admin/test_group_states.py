"""Groups as an operator sees them, put together from what all brokers and members say."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from rockhopper.client.admin import group_states
from rockhopper.client.admin.group_states import (
    MEMBERS_ASKED_AT_ONCE_MAX,
    GroupMember,
    GroupReader,
    QueueLag,
)
from rockhopper.client.errors import (
    BrokerUnreachableError,
    MalformedAnswerError,
    RouteNotFoundError,
)
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import TopicList
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from tests.support.told_groups import MASTERS, connections, groups, running, stats, topic_stats

CONNECTIONS, STATS, TOPIC_STATS = (
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_TOPIC_STATS_INFO,
)
SETTINGS, RUNNING = (
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
)
NOBODY = Command(206, remark="nobody")
"""What brokers answer where nobody of a group is online."""


def _nobody(_ext: dict[str, str]) -> Command:
    return NOBODY


class Brokers:
    """Two masters that answer as a test says; code 206 to whatever it has not named."""

    name_services = "n:9876"

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Callable[[dict[str, str]], Command]] = {}
        self.asked: list[tuple[str, int, dict[str, str]]] = []
        self.silent: frozenset[str] = frozenset()
        for address in MASTERS:
            self.tell(address, SETTINGS, groups())
        self.reader = GroupReader(cast(Any, self), self._masters)

    async def _masters(self) -> list[Any]:
        return list(MASTERS.values())

    def tell(self, address: str, code: int, body: bytes, **only: str) -> None:
        before = self.answers.get((address, code), _nobody)

        def answer(ext: dict[str, str]) -> Command:
            if all(ext.get(name) == value for name, value in only.items()):
                return Command(0, body=body)
            return before(ext)

        self.answers[address, code] = answer

    @property
    def asked_members(self) -> int:
        return sum(code == RUNNING for _, code, _ in self.asked)

    async def request(
        self, address: str, code: int, ext: dict[str, str] | None = None, **_: object
    ) -> Command:
        self.asked.append((address, code, ext or {}))
        if code == RUNNING and (ext or {})["clientId"] in self.silent:
            await asyncio.Event().wait()
        answer = self.answers.get((address, code), _nobody)(ext or {})
        if code == RUNNING and answer is NOBODY:
            raise BrokerUnreachableError("it is not connected there", address=address)
        return answer


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


async def test_settings_are_told_by_group_and_broker(brokers: Brokers) -> None:
    brokers.tell("a", SETTINGS, groups(g=3, alone=1))
    brokers.tell("b", SETTINGS, groups(g=5))
    found = await brokers.reader.settings()
    assert {name: sorted(by_broker) for name, by_broker in found.items()} == {
        "g": ["broker-a", "broker-b"],
        "alone": ["broker-a"],
    }
    assert found["g"]["broker-b"]["retryQueueNums"] == 5


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"subscriptionGroupTable":[]}'])
async def test_a_broker_without_a_table_has_no_groups(brokers: Brokers, body: bytes) -> None:
    brokers.tell("a", SETTINGS, body)
    assert await brokers.reader.settings() == {}


async def test_a_table_that_cannot_be_read_names_its_broker(brokers: Brokers) -> None:
    brokers.tell("b", SETTINGS, b"{")
    with pytest.raises(MalformedAnswerError, match="b answered GET_ALL_SUBSCRIPTIONGROUP_CONFIG"):
        await brokers.reader.settings()


async def test_groups_of_tools_and_brokers_are_left_out(brokers: Brokers) -> None:
    brokers.tell("a", SETTINGS, groups(z=1, a=1, TOOLS_CONSUMER=1, CID_RMQ_SYS_TRANS=1))
    assert await brokers.reader.names() == ["a", "z"]
    assert await brokers.reader.names(with_system=True) == [
        "CID_RMQ_SYS_TRANS",
        "TOOLS_CONSUMER",
        "a",
        "z",
    ]


async def test_a_member_that_two_brokers_know_is_one(brokers: Brokers) -> None:
    brokers.tell("a", CONNECTIONS, connections("m1", "m2", orders="new || paid"))
    brokers.tell("b", CONNECTIONS, connections("m2", "m3", payments=""))
    assert await brokers.reader.members("g") == [
        GroupMember(name, f"{name}:1", "JAVA", 479) for name in ("m1", "m2", "m3")
    ]
    assert STATS not in {code for _, code, _ in brokers.asked}


async def test_everything_about_a_group(brokers: Brokers) -> None:
    brokers.tell("a", SETTINGS, groups(g=3))
    brokers.tell("a", CONNECTIONS, connections("m1", "m2", orders="new", payments=""))
    brokers.tell("a", STATS, stats(("orders", "broker-a", 0, 10, 4, 77)))
    brokers.tell("b", STATS, stats(("orders", "broker-b", 1, 9, 9, 0)))
    brokers.tell("b", RUNNING, running(("orders", "broker-b", 1)), clientId="m2")
    brokers.tell("a", RUNNING, running(("orders", "broker-a", 0)), clientId="m1")
    state = await brokers.reader.state("g")
    assert state.subscriptions == {"orders": "new", "payments": "*"}
    assert (state.consume_type, state.model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert state.start_from == "CONSUME_FROM_LAST_OFFSET"
    assert state.settings["broker-a"]["retryQueueNums"] == 3
    a, b = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 1)
    assert list(state.queues) == [QueueLag(a, 10, 4, 6, 77), QueueLag(b, 9, 9, 0, None)]
    assert state.lag == 6
    assert state.owners == {a: "m1", b: "m2"}


async def test_filters_are_told_by_member_without_the_retry_topic(brokers: Brokers) -> None:
    brokers.tell("a", CONNECTIONS, connections("m1", orders="new"))
    filters = {"orders": "new", "%RETRY%g": "*"}
    brokers.tell("a", RUNNING, running(("orders", "broker-a", 0), **filters), clientId="m1")
    assert (await brokers.reader.state("g")).filters == {"m1": {"orders": "new"}}


async def test_members_that_are_silent_do_not_use_a_connection_up(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers wait for each of them longer than we do, and serve so many of a connection only."""
    monkeypatch.setattr(group_states, "_MEMBERS_TELL_WITHIN_S", 0.05)
    names = [f"m{number}" for number in range(200)]
    brokers.tell("a", CONNECTIONS, connections(*names, orders="*"))
    brokers.silent = frozenset(names)
    state = await brokers.reader.state("g")
    assert len(state.members) == 200
    assert list(state.silent) == sorted(names)
    assert brokers.asked_members == MEMBERS_ASKED_AT_ONCE_MAX
    for _ in range(9):
        assert len((await brokers.reader.state("g")).silent) == 200
    assert MEMBERS_ASKED_AT_ONCE_MAX < brokers.asked_members < 64


async def test_all_of_many_members_tell(brokers: Brokers) -> None:
    names = [f"m{number}" for number in range(200)]
    brokers.tell("a", CONNECTIONS, connections(*names, orders="*"))
    for number, name in enumerate(names):
        brokers.tell("a", RUNNING, running(("orders", "broker-a", number)), clientId=name)
    state = await brokers.reader.state("g")
    assert (len(state.owners), list(state.silent)) == (200, [])


async def test_a_topic_without_offsets_is_asked_for_by_its_name(brokers: Brokers) -> None:
    brokers.tell("a", CONNECTIONS, connections("m1", orders="*", payments="*"))
    brokers.tell("a", STATS, stats(("orders", "broker-a", 0, 5, 1, 1)))
    brokers.tell("a", STATS, stats(("payments", "broker-a", 0, 3, 0, 0)), topic="payments")
    lags = await brokers.reader.lag("g")
    assert [(each.queue.topic, each.lag) for each in lags] == [("orders", 4), ("payments", 3)]
    asked = [ext.get("topic") for to, code, ext in brokers.asked if (to, code) == ("a", STATS)]
    assert asked == [None, "payments", "%RETRY%g"]


async def test_topics_are_asked_for_that_nobody_online_subscribes_to(brokers: Brokers) -> None:
    """208 without topics leaves them out while others of the group are online."""
    brokers.tell("a", CONNECTIONS, connections("m1", orders="*"))
    brokers.tell("a", STATS, stats(("orders", "broker-a", 0, 5, 5, 1)))
    brokers.tell("a", STATS, stats(("bills", "broker-a", 0, 60, 10, 1)), topicList="bills")
    brokers.tell("a", STATS, stats(("%RETRY%g", "broker-a", 0, 3, 0, 0)), topicList="%RETRY%g")
    topics = TopicList(topic_list=["bills", "orders"]).encode()
    brokers.tell("a", RequestCode.QUERY_TOPICS_BY_CONSUMER, topics, group="g")
    lags = {each.queue.topic: each.lag for each in await brokers.reader.lag("g")}
    assert lags == {"orders": 0, "bills": 50, "%RETRY%g": 3}


async def test_what_has_expired_is_no_lag(brokers: Brokers) -> None:
    brokers.tell("a", STATS, stats(("t", "broker-a", 0, 10, 4, 0), ("t", "broker-a", 1, 9, 20, 0)))
    brokers.tell("a", TOPIC_STATS, topic_stats(("t", "broker-a", 0, 8)))
    assert [each.lag for each in await brokers.reader.lag("g")] == [2, 0]


async def test_a_group_that_nobody_knows_is_named(brokers: Brokers) -> None:
    for ask in (brokers.reader.state, brokers.reader.lag):
        with pytest.raises(RouteNotFoundError, match="n:9876 knows group 'g'"):
            await ask("g")


async def test_a_group_with_settings_alone_is_there(brokers: Brokers) -> None:
    brokers.tell("b", SETTINGS, groups(g=1))
    assert await brokers.reader.lag("g") == []
    assert (await brokers.reader.state("g")).members == []


async def test_all_groups_are_told_with_members_and_lag(brokers: Brokers) -> None:
    brokers.tell("a", SETTINGS, groups(g=1, h=1))
    brokers.tell("a", CONNECTIONS, connections("m1", orders="*"), consumerGroup="h")
    brokers.tell("a", STATS, stats(("orders", "broker-a", 0, 5, 1, 1)), consumerGroup="h")
    first, second = await brokers.reader.states()
    assert (first.name, first.members, first.lag) == ("g", [], 0)
    assert (second.name, len(second.members), second.lag) == ("h", 1, 4)


async def test_an_answer_that_cannot_be_read_names_what_was_asked(brokers: Brokers) -> None:
    brokers.tell("b", STATS, b"nonsense")
    with pytest.raises(MalformedAnswerError, match="b answered GET_CONSUME_STATS"):
        await brokers.reader.lag("g")
