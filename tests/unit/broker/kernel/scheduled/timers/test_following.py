"""Following the timer topic: what each message means for the index, RocketMQ's own included."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.scheduled.timers import following
from rockhopper.broker.kernel.scheduled.timers.following import (
    IsOver,
    TimerQueue,
    origin_of,
    origin_text,
)
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import encode_properties
from tests.support.open_stores import Stores, put

TIMER_TOPIC = "rmq_sys_wheel_timer"


class Followed:
    """A timer topic whose messages a test writes, and the index that follows it."""

    def __init__(self, root: Path) -> None:
        self.stores = Stores(root)
        self.store: MessageStore = self.stores.open()
        self.index = TimerIndex(root / "slots", root / "quarantine")
        self.index.load(0, {}, self.index.load_deliveries()[0], lambda notes: set())
        self.queue = TimerQueue(self.store, self.index, precision_ms=1000)

    def put(self, out_ms: str, key: str = "K", topic: str = "orders", **more: str) -> None:
        properties = {"REAL_TOPIC": topic, "UNIQ_KEY": key, "TIMER_OUT_MS": out_ms} | more
        put(self.store, b"x", TIMER_TOPIC, properties=encode_properties(properties))

    def pending(self, is_over: IsOver | None = None) -> list[tuple[int, int]]:
        """Queue offset and due time of what waits, once all was followed."""
        while self.queue.follow(is_over):
            pass
        pending = filter(None, self.index.pending())
        return sorted((entry.queue_offset, entry.due_ms) for entry in pending)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    made = Followed(tmp_path)
    yield made
    made.index.close()
    made.stores.close_all()


def test_what_waits_is_taken_in_batches(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "BATCH_COUNT_MAX", 2)
    for number in range(5):
        followed.put(str(10_001 + number))
    assert followed.queue.range == (0, 5)
    assert followed.queue.follow()
    assert (followed.queue.offset, followed.index.waiting) == (2, 2)
    assert followed.pending() == [(number, 10_002 + number) for number in range(5)]
    assert followed.queue.offset == 5
    assert not followed.queue.follow()


def test_a_message_without_a_time_is_named_and_not_delivered(followed: Followed) -> None:
    followed.put("nonsense")
    followed.put("10001")
    with capture_logs() as logs:
        assert followed.pending() == [(1, 10_002)]
    assert [entry["queue_offset"] for entry in logs] == [0]


def test_a_message_appended_again_takes_the_place_and_time_of_the_older_one(
    followed: Followed,
) -> None:
    followed.put("10001")
    followed.put("99999", TIMER_ORIGIN="0/10002")
    assert followed.pending() == [(1, 10_002)]
    assert followed.index.waiting == 1


def test_a_withdrawal_of_ours_names_what_it_withdraws(followed: Followed) -> None:
    followed.put("10001")
    followed.put("10001")
    followed.put("10001", TIMER_DEL_UNIQKEY="orders+K", TIMER_ORIGIN="1/10002")
    assert followed.pending() == [(0, 10_002)]


@pytest.mark.parametrize("named", ["orders+K", "K"])
def test_a_withdrawal_of_rocketmqs_means_the_key_in_the_same_second(
    followed: Followed, named: str
) -> None:
    followed.put("10001")
    followed.put("12001")
    followed.put("10001", key="other")
    followed.put("10001", topic="others")
    followed.put("10900", TIMER_DEL_UNIQKEY=named)
    assert followed.pending() == [(1, 12_002), (2, 10_002), (3, 10_002)]


def test_a_withdrawal_finds_messages_of_earlier_batches_and_none_twice(
    followed: Followed,
) -> None:
    followed.put("10001")
    assert followed.pending() == [(0, 10_002)]
    followed.put("10001", TIMER_DEL_UNIQKEY="orders+K")
    followed.put("10001", TIMER_DEL_UNIQKEY="orders+K")
    assert followed.pending() == []
    assert followed.index.waiting == 0


def test_two_withdrawals_in_a_batch_withdraw_two_messages(followed: Followed) -> None:
    for _ in range(3):
        followed.put("10001")
    for _ in range(2):
        followed.put("10001", TIMER_DEL_UNIQKEY="orders+K")
    assert followed.pending() == [(2, 10_002)]


def test_what_rocketmq_rolled_replaces_what_has_its_key(followed: Followed) -> None:
    followed.put("10001")
    assert followed.pending() == [(0, 10_002)]
    followed.put("10001", TIMER_ROLL_TIMES="1")
    assert followed.pending() == [(1, 10_002)]


def test_what_was_delivered_before_an_import_does_not_wait(followed: Followed) -> None:
    followed.put("10001")
    followed.put("10002")
    assert followed.pending(lambda _message, due: due <= 10_002) == [(1, 10_003)]


def test_messages_are_found_by_offset_and_by_position(followed: Followed) -> None:
    followed.put("10001", key="a")
    followed.put("10001", key="b")
    second = followed.queue.message(1)
    assert second is not None
    assert second.properties["UNIQ_KEY"] == "b"
    assert followed.queue.message(2) is None
    assert followed.queue.message_at(second.commit_log_offset, 1) == second
    assert followed.queue.message_at(second.commit_log_offset, 0) is None
    assert followed.queue.message_at(1 << 40, 1) is None
    other = put(followed.store, b"x", "orders")
    assert followed.queue.message_at(other.commit_log_offset, 0) is None


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("3/44", (3, 44)),
        (origin_text(1, 2), (1, 2)),
        ("3", None),
        ("3/", None),
        ("/4", None),
        ("-3/4", None),
        ("x/4", None),
        (None, None),
    ],
)
def test_an_origin_is_two_numbers_or_none(text: str | None, origin: tuple[int, int] | None) -> None:
    properties = {} if text is None else {"TIMER_ORIGIN": text}
    assert origin_of(StoredMessage("t", 0, 0, 0, b"", properties=properties)) == origin


def test_an_empty_topic_is_at_its_end(followed: Followed) -> None:
    assert not followed.queue.follow()
    assert followed.queue.offset == 0


def test_what_the_queue_has_lost_is_stepped_over(followed: Followed) -> None:
    followed.put("10001")
    followed.put("20001")
    followed.store.visibility.purge_topics([TIMER_TOPIC])
    followed.put("30001")
    assert followed.queue.range == (2, 3)
    assert followed.queue.follow()
    assert (followed.queue.offset, followed.index.waiting) == (2, 0)
    assert followed.pending() == [(2, 30_002)]
