"""When producers are asked, how often, and what is held: with clocks that stand still."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.transactions import check_back
from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.broker.store.trusted_time import TrustedTime
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTIES_SIZE_BYTES_MAX, join_properties
from tests.support.features import transactions_of
from tests.support.peers import Clock
from tests.support.transaction_rig import TransactionRig, checks
from tests.support.transactions import COMMIT, HALF_TOPIC, HOLD_TOPIC, OP_TOPIC, ROLLBACK

MakeRig = Callable[..., TransactionRig]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    made: list[TransactionRig] = []

    def make(**settings: str) -> TransactionRig:
        made.append(TransactionRig(tmp_path / f"store{len(made)}", settings))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def test_the_first_question_comes_after_the_timeout_and_others_at_the_interval(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    producer = rig.producer()
    half = rig.send()
    rig.pass_time(5)
    assert checks(producer) == []
    rig.pass_time(1)
    assert checks(producer) == [half.offset]
    rig.pass_time(29)
    assert checks(producer) == []
    rig.pass_time(1)
    assert checks(producer) == [half.offset]


def test_nobody_is_asked_about_what_has_ended(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer = rig.producer()
    first, second, third = rig.send("K1"), rig.send("K2"), rig.send("K3")
    rig.end(first, COMMIT)
    rig.end(third, ROLLBACK)
    rig.pass_time(100)
    assert set(checks(producer)) == {second.offset}


def test_a_producer_may_ask_for_more_time(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer = rig.producer()
    half = rig.send(CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    rig.pass_time(99)
    assert checks(producer) == []
    rig.pass_time(1)
    assert checks(producer) == [half.offset]


def test_after_the_last_question_a_transaction_is_held(make_rig: MakeRig) -> None:
    rig = make_rig(transactionCheckMax="15")
    producer = rig.producer()
    half = rig.send()
    rig.pass_time(6 + 14 * 30)
    assert checks(producer) == [half.offset] * 15
    assert rig.open_count == 1
    rig.pass_time(30)
    assert checks(producer) == []
    assert rig.open_count == 0
    (held,) = rig.messages(HOLD_TOPIC)
    assert held.properties["REAL_TOPIC"] == "orders"
    assert held.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert rig.bodies(OP_TOPIC) == [b"0,"]
    assert rig.bodies() == []


def test_while_no_producer_is_there_nothing_is_counted(make_rig: MakeRig) -> None:
    rig = make_rig(transactionCheckMax="2")
    half = rig.send()
    other = rig.producer(group="others")
    rig.pass_time(3600, step_s=30)
    assert rig.open_count == 1
    assert transactions_of(rig.broker).halves.waiting_count() == 1
    producer = rig.producer()
    rig.pass_time(0.001)
    assert checks(producer) == [half.offset]
    assert transactions_of(rig.broker).halves.waiting_count() == 0
    assert rig.end(half, COMMIT, fromTransactionCheck="true") == 0
    assert rig.bodies() == [b"pay K1"]
    assert checks(other) == []


def test_who_may_not_see_the_topic_is_not_asked_and_not_counted(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(transactionCheckMax="2")
    topics: set[str] = set()

    def may_publish(access: AccessRules, client: Client, topic: str) -> bool:
        assert access is rig.broker.access
        topics.add(topic)
        return client.client_id != "stranger"

    monkeypatch.setattr(check_back, "may_publish", may_publish)
    stranger = rig.producer("stranger")
    half = rig.send()
    rig.pass_time(3600, step_s=30)
    assert checks(stranger) == []
    assert topics == {"orders"}
    assert rig.open_count == 1
    producer = rig.producer()
    rig.pass_time(0.001)
    assert checks(producer) == [half.offset]
    rig.pass_time(30)
    assert checks(producer) == [half.offset]
    assert checks(stranger) == []


def test_a_producer_that_leaves_is_not_counted_on(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer = rig.producer()
    half = rig.send()
    rig.pass_time(6)
    assert checks(producer) == [half.offset]
    producer.hang_up()
    rig.pass_time(300, step_s=30)
    (open_half,) = transactions_of(rig.broker).halves
    assert open_half.check_times == 1
    back = rig.producer()
    rig.pass_time(0.001)
    assert checks(back) == [half.offset]


def test_a_second_producer_brings_no_second_question(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.send()
    rig.pass_time(10)
    first = rig.producer("p1")
    rig.pass_time(0.001)
    assert checks(first) == [0]
    second = rig.producer("p2")
    rig.pass_time(1)
    assert checks(first) + checks(second) == []


def test_a_producer_that_does_not_read_is_spared(make_rig: MakeRig) -> None:
    rig = make_rig()
    deaf, reading = rig.producer("p1"), rig.producer("p2")
    deaf.writing_paused = True
    rig.send()
    rig.pass_time(6 + 30)
    assert checks(deaf) == []
    assert checks(reading) == [0, 0]
    reading.writing_paused = True
    rig.pass_time(60)
    (half,) = transactions_of(rig.broker).halves
    assert half.check_times == 2
    deaf.writing_paused = False
    rig.pass_time(1)
    assert checks(deaf) == [0]


def test_what_the_log_would_soon_delete_is_held(make_rig: MakeRig) -> None:
    rig = make_rig(fileReservedTime="2")
    rig.send()
    rig.pass_time(2 * 3600, step_s=60)
    assert rig.open_count == 1
    rig.pass_time(1)
    assert rig.open_count == 0
    assert rig.bodies(HOLD_TOPIC) == [b"pay K1"]


def count_by_trusted_time(rig: TransactionRig, reserved_ms: int) -> Clock:
    """Count ages as retention does; return the clock that it is based on."""
    clock = rig.clock
    directory = rig.broker.store.opened.layout.own
    trusted = TrustedTime(directory, clock, lambda: clock.monotonic_ns() // 1_000_000)
    transactions_of(rig.broker).check_back.counted_ms = lambda: trusted(reserved_ms)
    return clock


def test_a_clock_that_is_days_ahead_for_a_while_gives_nothing_up(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(fileReservedTime="2")
    clock = count_by_trusted_time(rig, 2 * HOUR_MS)
    producer = rig.producer()
    before = rig.send()
    clock.set_by(10 * DAY_MS)
    rig.pass_time(1)
    wrong = rig.send("K2")
    clock.set_by(10 * DAY_MS)
    rig.pass_time(1)
    clock.set_by(-20 * DAY_MS)
    rig.pass_time(1)
    after = rig.send("K3")
    rig.pass_time(30)
    assert set(checks(producer)) == {before.offset, wrong.offset, after.offset}
    assert rig.bodies(HOLD_TOPIC) == []
    producer.hang_up()
    rig.pass_time(2 * 3600 - 34, step_s=60)
    assert rig.open_count == 3
    rig.pass_time(5)
    assert rig.open_count == 0, "the log would soon delete them"


def test_a_clock_that_is_ahead_for_good_holds_what_is_old_and_nothing_else(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(fileReservedTime="24")
    clock = count_by_trusted_time(rig, 24 * HOUR_MS)
    rig.send()
    clock.set_by(10 * DAY_MS)
    rig.pass_time(23 * 3600, step_s=60)
    rig.send("K2")
    assert rig.open_count == 2
    rig.pass_time(3 * 3600, step_s=60)
    assert rig.bodies(HOLD_TOPIC) == [b"pay K1"]
    assert rig.open_count == 1


def test_a_clock_that_is_set_back_delays_no_question(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer = rig.producer()
    rig.send()
    rig.pass_time(6)
    assert checks(producer) == [0]
    rig.clock.set_by(-3_600_000)
    rig.pass_time(29)
    assert checks(producer) == []
    rig.pass_time(1)
    assert checks(producer) == [0]
    rig.send("K2")
    rig.pass_time(5)
    assert checks(producer) == []
    rig.pass_time(1)
    assert checks(producer) == [1]


def test_a_clock_that_is_set_forward_lets_questions_be_asked_at_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer = rig.producer()
    rig.send()
    rig.clock.set_by(3_600_000)
    rig.pass_time(0.25, 0.25)
    assert checks(producer) == [0]


def test_many_questions_are_spread_over_turns(make_rig: MakeRig) -> None:
    rig = make_rig()
    for number in range(500):
        rig.send(f"K{number}")
    rig.pass_time(10)
    producer = rig.producer()
    rig.pass_time(0.001)
    rig.pass_time(0.001)
    rig.pass_time(0.001)
    assert checks(producer) == list(range(500))


def test_all_that_is_open_was_looked_at_after_an_interval(make_rig: MakeRig) -> None:
    rig = make_rig(transactionCheckInterval="30000")
    check_back = transactions_of(rig.broker).check_back
    asked_ms = rig.clock()
    assert check_back.has_looked_since(asked_ms)
    rig.send()
    assert not check_back.has_looked_since(asked_ms)
    rig.pass_time(31)
    assert check_back.has_looked_since(asked_ms)


def test_a_half_with_a_separator_in_a_value_is_checked(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer = rig.producer()
    odd = rig.send("ODD", my="a\x01b")
    usual = rig.send("USUAL")
    rig.pass_time(6)
    assert set(checks(producer)) == {odd.offset, usual.offset}
    rig.restart()
    producer = rig.producer()
    rig.pass_time(30)
    assert set(checks(producer)) == {odd.offset, usual.offset}


def test_a_half_without_room_for_the_number_of_checks_is_checked_and_held(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(transactionCheckMax="2")
    producer = rig.producer()
    rig.send("USUAL", x="y")
    (message,) = rig.messages(HALF_TOPIC)
    added_bytes = len(join_properties(message.properties)) - len("y")
    full = rig.send("FULL!", x="y" * (PROPERTIES_SIZE_BYTES_MAX - added_bytes))
    rig.pass_time(6 + 29)
    assert full.offset in checks(producer)
    rig.pass_time(1 + 30)
    assert rig.open_count == 0
    held = rig.messages(HOLD_TOPIC)
    assert [each.properties["UNIQ_KEY"] for each in held] == ["USUAL", "FULL!"]
    assert held[1].properties["x"] == "y" * (PROPERTIES_SIZE_BYTES_MAX - added_bytes)


def test_an_unexpected_error_with_one_half_delays_only_that_one(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    producer = rig.producer()
    bad, good = rig.send("BAD"), rig.send("GOOD")
    ledger = transactions_of(rig.broker).ledger
    read: Callable[[int], StoredMessage | None] = ledger.half_at

    def fail(log_offset: int) -> StoredMessage | None:
        if log_offset == bad.log_offset:
            raise ValueError("damaged")
        return read(log_offset)

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(ledger, "half_at", fail)
        rig.pass_time(6 + 30)
    assert checks(producer) == [good.offset] * 2
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert [entry["offset"] for entry in errors] == [bad.offset] * 2
    rig.pass_time(30)
    assert set(checks(producer)) == {bad.offset, good.offset}
