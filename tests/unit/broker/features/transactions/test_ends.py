"""Ends of transactions: the first counts, a repeated one agrees, a contradiction is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.features.transactions import ends as module
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.properties import PROPERTIES_SIZE_BYTES_MAX, join_properties
from tests.support.features import transactions_of
from tests.support.transaction_rig import TransactionRig
from tests.support.transactions import COMMIT, HALF_TOPIC, ROLLBACK

OTHER = {COMMIT: ROLLBACK, ROLLBACK: COMMIT}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TransactionRig]:
    made = TransactionRig(tmp_path / "store")
    yield made
    made.close()


def counted(rig: TransactionRig) -> tuple[dict[str, int], dict[str, int]]:
    ends = transactions_of(rig.broker).ends
    return ends.committed, ends.rolled_back


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("after", ["at once", "restart"])
def test_a_repeated_end_agrees_and_another_one_is_refused(
    rig: TransactionRig, how: int, after: str
) -> None:
    half = rig.send()
    assert rig.end(half, how) == ResponseCode.SUCCESS
    if after == "restart":
        rig.restart()
    assert rig.end(half, how) == ResponseCode.SUCCESS
    assert rig.end(half, OTHER[how]) == ResponseCode.ILLEGAL_OPERATION
    assert len(rig.bodies()) == (how == COMMIT)
    assert rig.open_count == 0


def test_what_is_remembered_is_bounded_and_the_log_tells_the_rest(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDED_REMEMBERED_MAX", 1)
    halves = [rig.send(f"K{number}") for number in range(3)]
    for half, how in zip(halves, (COMMIT, ROLLBACK, COMMIT), strict=True):
        rig.end(half, how)
    assert rig.end(halves[0], COMMIT) == ResponseCode.SUCCESS
    assert rig.end(halves[1], COMMIT) == ResponseCode.ILLEGAL_OPERATION
    assert rig.end(halves[1], ROLLBACK) == ResponseCode.SUCCESS


def test_ends_are_counted_by_topic_once(rig: TransactionRig) -> None:
    first, second, third = (rig.send(f"K{number}") for number in range(3))
    for half, how in ((first, COMMIT), (first, COMMIT), (second, COMMIT), (third, ROLLBACK)):
        rig.end(half, how)
    assert counted(rig) == ({"orders": 2}, {"orders": 1})


@pytest.mark.parametrize(
    "changes",
    [
        {"producerGroup": "others"},
        {"tranStateTableOffset": 99},
        {"commitLogOffset": 1},
        {"commitLogOffset": 1 << 40},
    ],
)
def test_an_end_that_names_another_message_is_refused(
    rig: TransactionRig, changes: dict[str, object]
) -> None:
    half = rig.send()
    assert rig.end(half, COMMIT, **changes) == ResponseCode.SYSTEM_ERROR
    assert rig.bodies() == []
    assert rig.open_count == 1


def test_a_topic_that_is_gone_keeps_the_transaction_open(rig: TransactionRig) -> None:
    half = rig.send()
    rig.broker.tables.topics.delete("orders")
    assert rig.end(half, COMMIT) == ResponseCode.TOPIC_NOT_EXIST
    assert rig.open_count == 1
    rig.broker.create_topic("orders")
    assert rig.end(half, COMMIT) == ResponseCode.SUCCESS
    assert len(rig.bodies()) == 1


def test_a_topic_that_has_shrunk_gets_the_message_in_a_queue_it_has(rig: TransactionRig) -> None:
    rig.broker.create_topic("wide", queues=4)
    half = rig.send(topic="wide")
    rig.broker.create_topic("wide", queues=1)
    assert rig.end(half, COMMIT) == ResponseCode.SUCCESS
    assert len(rig.bodies("wide", 0)) == 1


def test_an_end_after_its_time_waits_for_the_check(rig: TransactionRig) -> None:
    half = rig.send(CHECK_IMMUNITY_TIME_IN_SECONDS="5")
    rig.clock.advance(5001)
    assert rig.end(half, COMMIT) == ResponseCode.ILLEGAL_OPERATION
    assert rig.end(half, COMMIT, fromTransactionCheck="true") == ResponseCode.SUCCESS


def test_the_final_message_is_the_half_one_in_its_topic(rig: TransactionRig) -> None:
    half = rig.send(TAGS="a")
    rig.end(half, COMMIT)
    (message,) = rig.messages()
    assert message.body == b"pay K1"
    assert message.properties["TAGS"] == "a"
    assert message.prepared_transaction_offset == half.log_offset
    assert message.sys_flag & 0xC == COMMIT
    assert not {"REAL_TOPIC", "REAL_QID"} & message.properties.keys()


def test_a_half_with_long_properties_is_committed_to_wait_for_its_time(rig: TransactionRig) -> None:
    delay = {"TIMER_DELAY_MS": "60000"}
    rig.send("USUAL", x="y", **delay)
    (message,) = rig.messages(HALF_TOPIC)
    room_bytes = PROPERTIES_SIZE_BYTES_MAX - len(join_properties(message.properties))
    half = rig.send("FULL!", x="y" * (room_bytes + 1), **delay)
    assert rig.end(half, COMMIT) == 0
    (final,) = rig.messages("rmq_sys_wheel_timer")
    assert final.properties["x"] == "y" * (room_bytes + 1)
    assert final.properties["REAL_TOPIC"] == "orders"


def test_a_half_with_long_properties_is_committed_after_a_check(rig: TransactionRig) -> None:
    rig.producer()
    rig.send("USUAL", x="y")
    (message,) = rig.messages(HALF_TOPIC)
    room_bytes = PROPERTIES_SIZE_BYTES_MAX - len(join_properties(message.properties))
    half = rig.send("FULL!", x="y" * (room_bytes + 1))
    odd = rig.send("ODD", x="a\x01b")
    rig.pass_time(7)
    assert (rig.end(half, COMMIT), rig.end(odd, COMMIT)) == (0, 0)
    assert [each.properties["x"] for each in rig.messages()] == ["y" * (room_bytes + 1), "a\x01b"]
