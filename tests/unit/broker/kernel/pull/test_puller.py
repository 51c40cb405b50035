"""Puller: the order of checks and their codes, committing with a pull, waiting for messages.

The table is RocketMQ's PullMessageProcessor (checks in order), where the first failure answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import Subscription
from tests.support.direct import pull_fields
from tests.support.peers import Clock, Peer
from tests.support.rules import Rules
from tests.support.served_broker import SETTINGS, ServedBroker
from tests.support.turns import until

Break = Callable[[ServedBroker, dict[str, str]], None]
WAITING_MS = 15_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    served = ServedBroker(tmp_path, Clock(), {})
    served.create_topic("orders")
    yield served
    await served.close()


def configure(broker: ServedBroker, **settings: str) -> None:
    changed = SETTINGS | settings | {"storePathRootDir": str(broker.config.store.root)}
    broker.change_config(build_config(changed))


def no_reading(broker: ServedBroker, _ext: dict[str, str]) -> None:
    configure(broker, brokerPermission="2")


def no_lite_pull(broker: ServedBroker, _ext: dict[str, str]) -> None:
    configure(broker, litePullMessageEnable="false")


def no_group(broker: ServedBroker, ext: dict[str, str]) -> None:
    ext["consumerGroup"] = "bad group"


def disabled_group(broker: ServedBroker, ext: dict[str, str]) -> None:
    group = broker.tables.groups.find_or_create(ext["consumerGroup"])
    if group is not None:
        group.consume_enable = False


def no_topic(broker: ServedBroker, ext: dict[str, str]) -> None:
    broker.tables.topics.delete("orders")


def unreadable_topic(broker: ServedBroker, ext: dict[str, str]) -> None:
    if broker.tables.topics.get("orders") is not None:
        broker.create_topic("orders", perm=2)


def bad_queue(broker: ServedBroker, ext: dict[str, str]) -> None:
    ext["queueId"] = "4"


def bad_expression(broker: ServedBroker, ext: dict[str, str]) -> None:
    ext["subscription"] = "||"


# What is wrong, the code, and the forbidden type that goes with NO_PERMISSION.
CHECKS: list[tuple[Break, int, str | None]] = [
    (no_reading, ResponseCode.NO_PERMISSION, "1"),
    (no_lite_pull, ResponseCode.NO_PERMISSION, "1"),
    (no_group, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, None),
    (disabled_group, ResponseCode.NO_PERMISSION, "2"),
    (no_topic, ResponseCode.TOPIC_NOT_EXIST, None),
    (unreadable_topic, ResponseCode.NO_PERMISSION, "3"),
    (bad_queue, ResponseCode.INVALID_PARAMETER, None),
    (bad_expression, ResponseCode.SUBSCRIPTION_PARSE_FAILED, None),
]


async def lite_pull(broker: ServedBroker, ext: dict[str, str]) -> Command:
    return await broker.ask(RequestCode.LITE_PULL_MESSAGE, ext)


async def pull(broker: ServedBroker, offset: int = 0, **ext: str) -> Command:
    return await broker.ask(RequestCode.PULL_MESSAGE, pull_fields("orders", offset) | ext)


@pytest.mark.parametrize("first", range(len(CHECKS)))
async def test_the_first_check_that_fails_answers(broker: ServedBroker, first: int) -> None:
    ext = pull_fields("orders", 0)
    # All that comes behind is wrong as well; what one group is cannot be two things.
    for spoil, _, _ in reversed(CHECKS[first:]):
        spoil(broker, ext)
    answer = await lite_pull(broker, ext)
    _, code, forbidden = CHECKS[first]
    assert answer.code == code, answer.remark
    assert (answer.ext or {}).get("forbiddenType") == forbidden
    assert answer.remark


async def test_a_plain_pull_does_not_mind_that_lite_pulls_are_off(broker: ServedBroker) -> None:
    configure(broker, litePullMessageEnable="false")
    assert (await pull(broker)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("queue_id", ["-1", "4", "2147483647"])
async def test_a_queue_that_the_topic_does_not_have_is_named(
    broker: ServedBroker, queue_id: str
) -> None:
    answer = await pull(broker, queueId=queue_id)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert f"queueId[{queue_id}]" in str(answer.remark)


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [
        (0, ResponseCode.SUCCESS, "FOUND", "3"),
        (2, ResponseCode.SUCCESS, "FOUND", "3"),
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "3"),
        (4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "3"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
    ],
)
async def test_an_answer_says_what_was_found_and_where_to_go_on(
    broker: ServedBroker, offset: int, code: int, remark: str, following: str
) -> None:
    for number in range(3):
        broker.put("orders", b"%d" % number)
    answer = await pull(broker, offset)
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": following,
        "minOffset": "0",
        "maxOffset": "3",
    }
    bodies = [message.body for message in decode_messages(answer.body)]
    assert bodies == [b"%d" % number for number in range(3)][offset:] * (remark == "FOUND")


@pytest.mark.parametrize(
    ("memory_bytes", "is_enabled", "suggested"),
    [(0, "true", "3"), (0, "false", "0"), (1 << 40, "true", "0")],
)
async def test_a_reader_of_what_is_no_longer_in_memory_is_sent_to_the_replica_of_its_group(
    broker: ServedBroker, memory_bytes: int, is_enabled: str, suggested: str
) -> None:
    configure(broker, slaveReadEnable=is_enabled)
    group = broker.tables.groups.find_or_create(pull_fields("orders", 0)["consumerGroup"])
    assert group is not None
    group.which_broker_when_consume_slowly = 3
    broker.put("orders")
    reader = broker.store.reading.reader
    reader.limits = reader.limits._replace(memory_bytes=memory_bytes)
    answer = await pull(broker, 0)
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext or {})["suggestWhichBrokerId"] == suggested


@pytest.mark.parametrize(
    ("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)]
)
async def test_a_queue_without_messages_starts_at_zero(
    broker: ServedBroker, offset: int, code: int
) -> None:
    answer = await pull(broker, offset)
    assert answer.code == code
    assert (answer.ext or {})["nextBeginOffset"] == "0"
    assert broker.store.reading.queue_ids("orders") == []


async def test_nothing_that_matches_is_to_be_tried_again_from_further_on(
    broker: ServedBroker,
) -> None:
    broker.put("orders", properties="TAGS\x01a\x02")
    answer = await pull(broker, subscription="b")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (answer.ext or {})["nextBeginOffset"] == "1"


@pytest.mark.parametrize(
    ("sys_flag", "offset", "committed"), [("5", "7", 7), ("4", "7", None), ("5", "-1", None)]
)
async def test_a_pull_commits_if_it_says_so(
    broker: ServedBroker, sys_flag: str, offset: str, committed: int | None
) -> None:
    await pull(broker, sysFlag=sys_flag, commitOffset=offset)
    assert broker.tables.offsets.get("orders", "tests", 0) == committed


async def test_a_refused_pull_commits_nothing(broker: ServedBroker) -> None:
    await pull(broker, sysFlag="5", commitOffset="7", queueId="9")
    await pull(broker, sysFlag="5", commitOffset="7", subscription="||")
    assert broker.tables.offsets.queues("orders", "tests") == {}


async def test_a_reset_is_told_once_and_not_undone_by_a_late_commit(broker: ServedBroker) -> None:
    for _ in range(3):
        broker.put("orders")
    broker.tables.offsets.reset("orders", "tests", 0, 1)
    answer = await pull(broker, 3, sysFlag="5", commitOffset="3")
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert (answer.ext or {})["nextBeginOffset"] == "1"
    assert broker.tables.offsets.get("orders", "tests", 0) == 1
    assert (await pull(broker, 1)).code == ResponseCode.SUCCESS


async def waiting(broker: ServedBroker, peer: Peer, **ext: str) -> "asyncio.Task[Command]":
    """A pull that waits for a message."""
    fields = pull_fields("orders", 0, suspend_ms=WAITING_MS) | ext
    task = asyncio.create_task(broker.ask(RequestCode.PULL_MESSAGE, fields, peer=peer))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_message_answers_the_pull_that_waits(broker: ServedBroker) -> None:
    task = await waiting(broker, Peer())
    broker.put("orders", b"late")
    answer = await task
    assert [message.body for message in decode_messages(answer.body)] == [b"late"]


async def test_a_pull_that_waited_commits_only_when_it_arrives(broker: ServedBroker) -> None:
    task = await waiting(broker, Peer(), sysFlag="7", commitOffset="5")
    assert broker.tables.offsets.get("orders", "tests", 0) == 5
    broker.tables.offsets.commit("orders", "tests", 0, 2, backward=True)
    broker.put("orders")
    await task
    assert broker.tables.offsets.get("orders", "tests", 0) == 2


async def test_a_message_for_others_does_not_answer(broker: ServedBroker) -> None:
    task = await waiting(broker, Peer(), subscription="wanted")
    broker.put("orders", b"1", properties="TAGS\x01other\x02")
    broker.put("orders", b"2", queue_id=1, properties="TAGS\x01wanted\x02")
    await asyncio.sleep(0)
    assert not task.done()
    broker.put("orders", b"3", properties="TAGS\x01wanted\x02")
    answer = await task
    assert [message.body for message in decode_messages(answer.body)] == [b"3"]
    assert (answer.ext or {})["nextBeginOffset"] == "2"


async def test_the_end_of_the_broker_answers_not_found(broker: ServedBroker) -> None:
    task = await waiting(broker, Peer())
    broker.kernel.long_polling.stop()
    assert (await task).code == ResponseCode.PULL_NOT_FOUND
    # From then on nothing waits.
    answer = await pull(broker, sysFlag="6", suspendTimeoutMillis=str(WAITING_MS))
    assert answer.code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (no_reading, ResponseCode.NO_PERMISSION),
        (disabled_group, ResponseCode.NO_PERMISSION),
        (unreadable_topic, ResponseCode.NO_PERMISSION),
    ],
)
async def test_a_pull_that_waited_is_checked_again(
    broker: ServedBroker, spoil: Break, code: int
) -> None:
    task = await waiting(broker, Peer())
    spoil(broker, {"consumerGroup": "tests"})
    broker.put("orders", b"late")
    answer = await task
    assert (answer.code, answer.body) == (code, b"")


async def test_a_user_who_lost_the_permission_gets_nothing(tmp_path: Path) -> None:
    subscribes = [
        (Action.SUB, Resource(ResourceKind.TOPIC, "orders")),
        (Action.SUB, Resource(ResourceKind.GROUP, "tests")),
    ]
    rules = Rules(*subscribes)
    broker = ServedBroker(tmp_path / "guarded", Clock(), {}, rules)
    broker.create_topic("orders")
    task = await waiting(broker, Peer())
    rules.allowed.remove(subscribes[1])
    broker.put("orders", b"late")
    answer = await task
    await broker.close()
    assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")
    assert "is not allowed to Sub Group:tests" in str(answer.remark)


async def test_the_end_of_a_topic_answers_the_pulls_that_wait_for_it(
    broker: ServedBroker,
) -> None:
    broker.create_topic("others")
    other = await waiting(broker, Peer(), topic="others")
    task = await waiting(broker, Peer())
    broker.tables.topics.delete("orders")
    assert (await task).code == ResponseCode.TOPIC_NOT_EXIST
    assert not other.done()
    other.cancel()


class Retries(KernelListener):
    def __init__(self) -> None:
        self.read: list[str] = []

    def retries_read(self, group: str) -> None:
        self.read.append(group)


async def test_a_listener_learns_that_a_retry_topic_was_read(broker: ServedBroker) -> None:
    retries = Retries()
    broker.kernel.listeners[:] = [retries]
    broker.create_topic("%RETRY%tests", queues=1)
    broker.put("%RETRY%tests")
    assert (await pull(broker, topic="%RETRY%tests")).code == ResponseCode.SUCCESS
    assert retries.read == []
    await pull(broker, 1, topic="%RETRY%tests")
    assert retries.read == ["tests"]


async def test_a_peer_that_hangs_up_is_forgotten(broker: ServedBroker) -> None:
    peer = Peer()
    task = await waiting(broker, peer)
    assert len(broker.kernel.long_polling) == 1
    peer.hang_up()
    assert len(broker.kernel.long_polling) == 0
    broker.put("orders")
    assert peer.written == []
    task.cancel()


@pytest.mark.parametrize(("long", "expected_s"), [("true", 15.0), ("false", 0.5)])
async def test_how_long_a_pull_waits_is_its_wish_or_a_setting(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch, long: str, expected_s: float
) -> None:
    broker.config.pull.long_polling, broker.config.pull.short_polling_ms = long == "true", 500
    waits: list[float] = []

    def park(_parked: Any, suspend_s: float) -> bool:
        waits.append(suspend_s)
        broker.kernel.long_polling.is_closed = True
        return False

    monkeypatch.setattr(broker.kernel.long_polling, "park", park)
    await pull(broker, sysFlag="6", suspendTimeoutMillis=str(WAITING_MS))
    assert waits == [expected_s]


def join(broker: ServedBroker, peer: Peer, client_id: str, expression: str) -> None:
    wanted = {"orders": Subscription("orders", expression)}
    client = Client(peer.connection, client_id, language=0, version=479)
    settings = ConsumeSettings(heeds_readers=True)
    broker.kernel.consumers.register("billing", client, settings, wanted)


async def test_a_member_skips_nothing_for_one_that_wants_more_and_joins_while_it_waits(
    broker: ServedBroker,
) -> None:
    """It may hear of the other only after messages that both want and that only the other wants."""
    old, new = Peer(), Peer()
    join(broker, old, "old", "new")
    ext = pull_fields("orders", 0) | {
        "consumerGroup": "billing",
        "subscription": "new",
        "sysFlag": "6",
        "suspendTimeoutMillis": str(WAITING_MS),
    }
    waiting = asyncio.ensure_future(broker.ask(RequestCode.PULL_MESSAGE, ext, peer=old))
    await until(lambda: len(broker.kernel.long_polling) == 1)
    join(broker, new, "new", "new || paid")
    for tag in ("paid", "new"):
        broker.put("orders", properties=f"TAGS\x01{tag}\x02")
    assert (await waiting).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    answer = await broker.ask(RequestCode.PULL_MESSAGE, ext, peer=old)
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert "rebalance" in (answer.remark or "")
    ext["subscription"] = "new || paid"
    answer = await broker.ask(RequestCode.PULL_MESSAGE, ext, peer=new)
    assert len(decode_messages(answer.body)) == 2
