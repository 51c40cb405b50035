"""Rows as runs: which queue they go to, in which order, and which cannot be in one."""

from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.sink.encoding import Messages, encode_messages
from rockhopper.pipeline.sink.runs import StageItems
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkRun
from rockhopper.protocol.store.message_codec import decode_batch


def messages(count: int, **columns: Any) -> Messages:
    arrays = {"body": [f"{number}".encode() for number in range(count)], **columns}
    topic = "" if "topic" in columns else "T"
    batch = pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in arrays.items()})
    return encode_messages(batch, topic, lambda some: ["U"] * some, lambda: 77)


def told(items: list[SinkMessage | SinkRun]) -> list[tuple[str, int, list[int]]]:
    runs = [item for item in items if isinstance(item, SinkRun)]
    assert runs == items
    return [
        (run.topic, run.queue_id, [int(body) for _, body, _ in decode_batch(run.messages)])
        for run in runs
    ]


def test_rows_for_any_queue_take_turns_in_runs_that_are_worth_it() -> None:
    runs = StageItems(lambda _topic, _broker: 3, first_turn=4)
    found = told(runs.items(messages(200), [-1] * 200, slice(0, 200), "b"))
    assert [(queue_id, len(rows)) for _, queue_id, rows in found] == [(1, 66), (2, 67), (0, 67)]
    assert [row for _, _, rows in found for row in rows] == list(range(200))
    assert told(runs.items(messages(9), [-1] * 9, slice(2, 5), "b")) == [("T", 1, [2, 3, 4])]
    assert told(runs.items(messages(9), [-1] * 9, slice(5, 9), "b")) == [("T", 2, [5, 6, 7, 8])]


def test_rows_for_a_queue_go_there_in_their_order() -> None:
    found = StageItems(lambda _topic, _broker: 4).items(
        messages(6), [2, 0, 2, -1, 0, 2], slice(0, 6), "b"
    )
    assert told(found) == [("T", 2, [0, 2, 5]), ("T", 0, [1, 4]), ("T", 0, [3])]
    found = StageItems(lambda _topic, _broker: 4).items(messages(6), [2] * 6, slice(1, 4), "b")
    assert told(found) == [("T", 2, [1, 2, 3])]


def test_each_topic_has_runs_of_its_own() -> None:
    some = messages(4, topic=["A", "B", "A", "B"])
    found = told(StageItems(lambda _topic, _broker: 1).items(some, [-1] * 4, slice(0, 4), "b"))
    assert found == [("A", 0, [0, 2]), ("B", 0, [1, 3])]


@pytest.mark.parametrize(
    "columns", [{"bornTimestamp": [1, 2]}, {"delayTimeLevel": [None, 3]}, {"topic": ["A", "%R"]}]
)
def test_rows_that_a_run_cannot_hold_go_one_by_one(columns: dict[str, Any]) -> None:
    some = messages(2, **columns)
    found = StageItems(lambda _topic, _broker: 1).items(some, [3, -1], slice(0, 2), "b")
    assert all(isinstance(item, SinkMessage) for item in found)
    assert [(item.queue_id, item.topic) for item in found] == [
        (3, some.topics[0]),
        (-1, some.topics[1]),
    ]
    times = columns.get("bornTimestamp", [77, 77])
    assert [item.born_time_ms for item in found] == times
