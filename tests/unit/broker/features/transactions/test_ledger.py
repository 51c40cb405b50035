"""Stores that RocketMQ's broker wrote: copies of half messages, op messages of every form."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.features import transactions_of
from tests.support.transaction_rig import TransactionRig, checks
from tests.support.transactions import COMMIT, GROUP, HALF_TOPIC, OP_TOPIC, ROLLBACK, Half

REAL = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TransactionRig]:
    made = TransactionRig(tmp_path)
    yield made
    made.close()


def put_half(rig: TransactionRig, key: str, properties: str = "") -> Half:
    """Store a half message as RocketMQ does."""

    async def put() -> Half:
        text = f"{REAL}UNIQ_KEY\x01{key}\x02__transactionId__\x01{key}\x02{properties}"
        result = rig.broker.put(HALF_TOPIC, b"pay " + key.encode(), properties=text)
        return Half(result.queue_offset, result.commit_log_offset, key, "")

    return rig.loop.run(put())


def put_op(rig: TransactionRig, body: bytes) -> None:
    """Store an op message as RocketMQ does."""

    async def put() -> None:
        rig.broker.put(OP_TOPIC, body, properties="TAGS\x01d\x02")

    rig.loop.run(put())


def test_what_op_messages_name_is_over(rig: TransactionRig) -> None:
    for number in range(6):
        put_half(rig, f"K{number}")
    put_op(rig, b"0,3,4,")
    put_op(rig, b"1")
    rig.reopen()
    assert [half.offset for half in transactions_of(rig.broker).halves] == [2, 5]


@pytest.mark.parametrize("end_original", [True, False])
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_a_copy_and_its_original_are_one_transaction(
    rig: TransactionRig, how: int, end_original: bool
) -> None:
    original = put_half(rig, "K1")
    put_half(rig, "K2")
    copy = put_half(rig, "K1", "TRANSACTION_CHECK_TIMES\x013\x02")
    rig.reopen()
    assert rig.open_count == 2
    (half,) = (h for h in transactions_of(rig.broker).halves if h.offset == copy.offset)
    assert half.check_times == 3

    assert rig.end(original if end_original else copy, how) == 0

    assert rig.bodies() == ([b"pay K1"] if how == COMMIT else [])
    assert rig.bodies(OP_TOPIC) == [b"2,0,"]
    rig.reopen()
    assert [half.offset for half in transactions_of(rig.broker).halves] == [1]
    for again in (original, copy):
        assert rig.end(again, how) == 0
    assert rig.bodies() == ([b"pay K1"] if how == COMMIT else [])


def test_a_copy_whose_original_was_committed_is_not_committed_again(rig: TransactionRig) -> None:
    original = put_half(rig, "K1")
    copy = put_half(rig, "K1", "TRANSACTION_CHECK_TIMES\x011\x02")
    text = f"{REAL}UNIQ_KEY\x01K1\x02"

    async def put_final() -> None:
        store = rig.broker.store
        store.staging.read_clock()
        properties = dict(pair.split("\x01") for pair in text.split("\x02") if pair)
        tail = store.staging.tail("orders", 0)
        store.staging.stage(
            tail, b"pay K1", properties, 0, 8, 0, b"\x7f\0\0\1\0\0\0\0", 0, original.log_offset
        )
        store.commit()

    rig.loop.run(put_final())
    put_op(rig, b"0,")
    rig.reopen()
    assert rig.open_count == 1
    producer = rig.producer()
    rig.pass_time(10)
    assert checks(producer) == []
    assert rig.open_count == 0
    assert rig.end(copy, COMMIT) == 0
    assert rig.bodies() == [b"pay K1"]


def test_two_half_messages_of_one_send_that_was_tried_twice_stay_two(rig: TransactionRig) -> None:
    put_half(rig, "K1")
    put_half(rig, "K1")
    rig.reopen()
    assert rig.open_count == 2


def test_a_half_message_that_the_log_lost_is_given_up(rig: TransactionRig) -> None:
    rig.producer()
    half = rig.send()
    transactions_of(rig.broker).halves.get(half.offset).log_offset += 1
    rig.pass_time(6)
    assert rig.open_count == 0
    assert rig.bodies(OP_TOPIC) == [b"0,"]
