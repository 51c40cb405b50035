"""Copies of delayed messages: what they are for, what they carry, and how they are known again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.scheduled.timers.copies import (
    find_written_copies,
    is_copy,
    stage_copy,
)
from rockhopper.protocol.message import StoredMessage
from tests.support.timer_rig import TimerRig

PROPERTIES = {"REAL_TOPIC": "orders", "REAL_QID": "1", "TAGS": "a"}
MESSAGE = StoredMessage(
    "rmq_sys_wheel_timer", 0, 7, 0, b"hello", flag=3, born_time_ms=77, properties=PROPERTIES
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    made = TimerRig(tmp_path / "store")
    yield made
    made.close()


def copy_of(rig: TimerRig, message: StoredMessage, more: dict[str, str]) -> int | None:
    """Write a copy as a pass does; where it was staged."""
    store = rig.broker.store
    store.staging.read_clock()
    position = stage_copy(store, rig.broker.tables.topics, message, message.properties, more)
    store.commit()
    return position


def test_a_copy_is_the_message_in_its_own_topic(rig: TimerRig) -> None:
    message = replace(MESSAGE, reconsume_times=2, born_host="1.2.3.4", born_port=5)
    position = copy_of(rig, message, {"TIMER_DEQUEUE_MS": "9"})
    (copy,) = rig.delivered()
    assert copy.commit_log_offset == position
    assert (copy.topic, copy.queue_id, copy.body, copy.flag) == ("orders", 1, b"hello", 3)
    assert (copy.born_time_ms, copy.born_host, copy.born_port) == (77, "1.2.3.4", 5)
    assert copy.reconsume_times == 2
    assert copy.properties == PROPERTIES | {"TIMER_DEQUEUE_MS": "9"}
    assert is_copy(copy, message)


def test_what_has_no_room_for_more_goes_without_it(rig: TimerRig) -> None:
    message = replace(MESSAGE, properties=PROPERTIES | {"k": "v" * 32_000})
    assert copy_of(rig, message, {"more": "m" * 1000}) is not None
    (copy,) = rig.delivered()
    assert copy.properties == message.properties


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"REAL_TOPIC": "gone"}, "its topic gone was deleted"),
        ({"REAL_TOPIC": ""}, "its topic is no topic"),
        ({"REAL_TOPIC": "rmq_sys_wheel_timer"}, "to which no client may send"),
        ({"REAL_QID": "x"}, "its queue id is 'x'"),
        ({"REAL_QID": "-1"}, "its queue id is '-1'"),
        ({"REAL_QID": "٣"}, "its queue id is"),
        ({"REAL_QID": "65536"}, "its queue id is '65536'"),
        ({"k": "v" * 40_000}, "propert"),
    ],
)
def test_what_can_never_be_delivered_is_dropped_and_named(
    rig: TimerRig, changed: dict[str, str], reason: str
) -> None:
    with capture_logs() as logs:
        message = replace(MESSAGE, properties=PROPERTIES | changed)
        assert copy_of(rig, message, {}) is None
    assert [entry["queue_offset"] for entry in logs] == [7]
    assert reason in logs[0]["reason"]
    assert rig.delivered() == []


@pytest.mark.parametrize(
    ("is_one", "change"),
    [
        (True, {}),
        (True, {"queue_offset": 99, "store_time_ms": 1}),
        (True, {"properties": PROPERTIES | {"TIMER_DEQUEUE_MS": "1", "TIMER_ENQUEUE_MS": "2"}}),
        (True, {"properties": PROPERTIES | {"TIMER_ORIGIN": "1/2"}}),
        (False, {"properties": PROPERTIES | {"TAGS": "b"}}),
        (False, {"properties": PROPERTIES | {"more": ""}}),
        (False, {"topic": "other"}),
        (False, {"queue_id": 2}),
        (False, {"body": b"hellO"}),
        (False, {"born_time_ms": 78}),
    ],
)
def test_a_copy_is_known_by_what_it_carries(is_one: bool, change: dict[str, object]) -> None:
    copy = replace(MESSAGE, topic="orders", queue_id=1)
    assert is_copy(replace(copy, **change), MESSAGE) is is_one  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "told"),
    [([], []), ([0], [0]), ([0, 1, 2], [0, 1, 2]), ([1, 2], [1, 2]), ([0, 9, 1], [0])],
)
def test_the_log_tells_which_copies_of_a_pass_were_written(
    rig: TimerRig, written: list[int], told: list[int]
) -> None:
    messages = [replace(MESSAGE, body=b"%d" % number) for number in range(10)]
    rig.broker.put("orders", b"before", queue_id=1)
    log_end = rig.broker.store.log.written_offset
    for number in written:
        copy_of(rig, messages[number], {})
    found = find_written_copies(rig.broker.store, log_end, messages[:3])
    assert [message.body for message in found] == [b"%d" % number for number in told]


def test_what_stands_behind_the_copies_is_not_looked_at(rig: TimerRig) -> None:
    log_end = rig.broker.store.log.written_offset
    copy_of(rig, MESSAGE, {})
    rig.broker.put("orders", b"after", queue_id=1)
    copy_of(rig, replace(MESSAGE, body=b"late"), {})
    messages = [MESSAGE, replace(MESSAGE, body=b"late")]
    assert find_written_copies(rig.broker.store, log_end, messages) == [MESSAGE]
