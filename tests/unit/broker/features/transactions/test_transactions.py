"""Transactions as a whole: restarts, what is held and resumed, and what stays open for long."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.broker.users.errors import Refusal
from tests.support.features import transactions_of
from tests.support.transaction_rig import TransactionRig, checks
from tests.support.transactions import COMMIT, HALF_TOPIC, HOLD_TOPIC, OP_TOPIC, ROLLBACK, Half

MakeRig = Callable[..., TransactionRig]
Result = TypeVar("Result")
FULL = "the disk is full"


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    made: list[TransactionRig] = []

    def make(**settings: str) -> TransactionRig:
        made.append(TransactionRig(tmp_path / f"store{len(made)}", settings))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: MakeRig) -> TransactionRig:
    return make_rig()


def call(rig: TransactionRig, function: Callable[..., Result], *arguments: object) -> Result:
    """Call what needs the event loop."""

    async def called() -> Result:
        return function(*arguments)

    return rig.loop.run(called())


@pytest.fixture
def held(make_rig: MakeRig) -> TransactionRig:
    """A transaction that nobody decided, and that is asked about no more."""
    rig = make_rig(transactionCheckMax="1")
    rig.producer()
    rig.send()
    rig.pass_time(6 + 30)
    assert rig.bodies(HOLD_TOPIC) == [b"pay K1"]
    return rig


def test_a_restart_forgets_neither_half_messages_nor_counts(make_rig: MakeRig) -> None:
    rig = make_rig(transactionCheckMax="3")
    producer = rig.producer()
    rig.end(rig.send("K0"), COMMIT)
    half = rig.send("K1")
    rig.pass_time(6 + 30)
    assert checks(producer) == [half.offset] * 2
    rig.restart()
    assert rig.open_count == 1
    producer = rig.producer()
    rig.pass_time(1)
    assert checks(producer) == [half.offset]
    rig.pass_time(30)
    assert checks(producer) == []
    assert rig.bodies(HOLD_TOPIC) == [b"pay K1"]
    rig.restart()
    assert rig.open_count == 0
    assert rig.bodies() == [b"pay K0"]


def test_a_young_half_message_is_left_alone_after_a_restart(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.send()
    rig.send("K2", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    rig.restart()
    producer = rig.producer()
    rig.pass_time(5)
    assert checks(producer) == []
    rig.pass_time(1)
    assert checks(producer) == [0]


def test_counts_that_cannot_be_read_start_anew(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer = rig.producer()
    rig.send()
    rig.pass_time(6)
    assert checks(producer) == [0]
    rig.restart()
    path = rig.root / "rockhopper" / "transactions.json"
    assert '"checkTimes"' in path.read_text()
    rig.restart()
    path.write_text("no JSON")
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    rig.restart()
    assert rig.open_count == 1


def test_one_that_stays_open_is_put_behind_the_many_that_end(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would have to read all that ended since."""
    monkeypatch.setattr("rockhopper.broker.features.transactions.transactions.ENDED_BEHIND_MAX", 10)
    producer = rig.producer()
    stuck = rig.send("K1")
    rig.pass_time(6)
    assert checks(producer) == [stuck.offset]
    producer.hang_up()
    for _ in range(3):
        for number in range(12):
            rig.end(rig.send(f"N{number}"), ROLLBACK)
        rig.pass_time(5)
    (half,) = transactions_of(rig.broker).halves
    assert (half.offset, half.check_times) == (39, 1)
    rig.flush()
    rig.pass_time(5)
    assert rig.broker.tables.offsets.get(HALF_TOPIC, "CID_RMQ_SYS_TRANS", 0) == 39
    back = rig.producer()
    rig.pass_time(30)
    assert checks(back) == [39]
    rig.restart()
    (half,) = transactions_of(rig.broker).halves
    assert (half.offset, half.check_times) == (39, 2)
    for _ in range(2):
        assert rig.end(stuck, COMMIT) == 0, "the producer knows the first place only"
    assert rig.bodies() == [b"pay K1"]
    assert rig.open_count == 0
    rig.restart()
    assert rig.open_count == 0
    assert rig.end(stuck, COMMIT) == 0
    assert rig.bodies() == [b"pay K1"]


def test_what_is_held_is_counted_and_its_topic_made(held: TransactionRig) -> None:
    assert transactions_of(held.broker).check_back.held_count == 1
    topic = held.broker.tables.topics.get(HOLD_TOPIC)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums) == (1, 1)
    held.restart()
    assert held.open_count == 0


def test_a_held_transaction_is_resumed_with_all_its_checks(held: TransactionRig) -> None:
    transactions = transactions_of(held.broker)
    (message,) = held.messages(HOLD_TOPIC)
    end = call(held, transactions.resume, message)
    assert end == held.broker.store.log.written_offset
    (half,) = transactions.halves
    assert (half.offset, half.check_times) == (1, 0)
    assert held.messages(HALF_TOPIC)[1].properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert call(held, transactions.resume, message) == end, "it is open already"
    assert len(transactions.halves) == 1
    producer = held.producer()
    held.pass_time(6)
    assert checks(producer) == [1]


def test_what_was_committed_is_not_resumed(held: TransactionRig) -> None:
    transactions = transactions_of(held.broker)
    (message,) = held.messages(HOLD_TOPIC)
    call(held, transactions.resume, message)
    (half,) = transactions.halves
    again = Half(half.offset, half.log_offset, "K1", message.offset_message_id)
    assert held.end(again, COMMIT) == 0
    with pytest.raises(Refusal, match="committed already"):
        call(held, transactions.resume, message)


def test_a_full_disk_leaves_what_is_held_and_what_is_open(held: TransactionRig) -> None:
    transactions, store = transactions_of(held.broker), held.broker.store
    (message,) = held.messages(HOLD_TOPIC)
    call(held, transactions.resume, message)
    store.retention.space.full_reason = FULL
    held.pass_time(6 + 30)
    (half,) = transactions.halves
    other = held.messages(HALF_TOPIC)[0]
    with pytest.raises(DiskFullError, match=FULL):
        call(held, transactions.ends.roll_back, half)
    assert list(transactions.halves) == [half]
    assert transactions.check_back.held_count == 1
    assert transactions.resume(other) == store.log.written_offset
    store.retention.space.full_reason = None
    held.pass_time(60)
    assert transactions.check_back.held_count == 2


def test_a_purge_forgets_what_is_open(rig: TransactionRig) -> None:
    producer = rig.producer()
    for number in range(3):
        rig.send(f"K{number}")
    call(rig, transactions_of(rig.broker).purge)
    assert rig.open_count == 0
    assert rig.bodies(OP_TOPIC) == []
    rig.pass_time(60)
    assert checks(producer) == []
    assert rig.bodies() == []


def test_just_as_many_as_may_end_behind_one_leave_it_where_it_is(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.features.transactions.transactions.ENDED_BEHIND_MAX", 10)
    rig.send("K1")
    for number in range(10):
        rig.end(rig.send(f"N{number}"), ROLLBACK)
    rig.pass_time(5)
    (half,) = transactions_of(rig.broker).halves
    assert half.offset == 0
    rig.end(rig.send("one more"), ROLLBACK)
    rig.pass_time(5)
    (half,) = transactions_of(rig.broker).halves
    assert half.offset == 12
    assert half.copies == (0,)


def test_of_the_places_of_one_moved_often_the_first_and_the_last_are_known(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.features.transactions.transactions.ENDED_BEHIND_MAX", 0)
    stuck = rig.send("K1")
    for number in range(6):
        rig.end(rig.send(f"N{number}"), ROLLBACK)
        rig.pass_time(5)
    (half,) = transactions_of(rig.broker).halves
    assert (half.offset, half.copies) == (12, (0, 6, 8, 10))
    assert rig.end(stuck, COMMIT) == 0
    assert rig.bodies() == [b"pay K1"]
