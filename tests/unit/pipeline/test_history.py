"""Where an archive ends, and what the source is told of it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rockhopper.pipeline import PipelineError, history_view
from rockhopper.pipeline.history import reached_by, starts
from rockhopper.pipeline.jobs.archiving.manifest import (
    LogPosition,
    Manifest,
    QueueSummary,
    Reached,
)

QUEUE = QueueSummary("orders", "a", 0, 0, 9, 10, 0, 0, 0, 0)
EMPTY = Manifest(1, 0, {}, (), None)


def test_queues_that_were_read_over_the_network_begin_where_the_newest_manifest_says() -> None:
    reached = Reached({"orders": {"a": {"0": 10}}}, {"orders": {"a": "id"}})
    first = replace(EMPTY, queues=(QUEUE,))
    second = replace(EMPTY, run=2, queues=(replace(QUEUE, last_offset=8),), reached=reached)
    assert reached_by([first, second]) == reached
    found = starts(reached, ["orders", "other"])
    assert {name: json.loads(text) for name, text in found.items()} == {
        "startingOffsets": reached.positions,
        "topicIds": reached.topic_ids,
    }
    assert starts(reached, ["other"]) == {}


def test_queues_that_came_from_files_begin_behind_their_last_message() -> None:
    logs = {"a": LogPosition({"*": 1000})}
    later = replace(QUEUE, first_offset=10, last_offset=14)
    manifests = [
        replace(
            EMPTY, queues=(QUEUE, replace(QUEUE, queue_id=1, last_offset=3)), log_positions=logs
        ),
        replace(EMPTY, run=2, queues=(later,), log_positions=logs),
    ]
    assert reached_by(manifests).positions == {"orders": {"a": {"0": 15, "1": 4}}}
    nameless = replace(QUEUE, broker="")
    with pytest.raises(PipelineError, match="archive it again with --broker-name"):
        reached_by([replace(EMPTY, queues=(nameless,), log_positions={"": LogPosition({})})])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": "earliest"}, "leave startingOffsets out"),
        ({"subscribe": "x"}, "leave subscribe out"),
        ({"columns": "body,rawProperties"}, "no column 'rawProperties'"),
    ],
)
def test_options_that_a_view_has_no_use_for(options: dict[str, Any], says: str) -> None:
    nothing: Any = None
    with pytest.raises(PipelineError, match=says):
        history_view(nothing, "orders", archive="a", nameserver="n", **options)
