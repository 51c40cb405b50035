"""Where an archive ends, and what the source is told of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline import PipelineError, history_view, jobs
from rockhopper.pipeline.history import _history, find_reached, make_start_options
from rockhopper.pipeline.jobs.archiving.manifest import (
    ArchivedFile,
    LogPosition,
    Manifest,
    QueueSummary,
    Reached,
)
from tests.support.written_logs import T0_MS, WrittenLog

QUEUE = QueueSummary("orders", "a", 0, 0, 9, 10, 0, 0, 0, 0)
EMPTY = Manifest(1, 0, {}, (), None)


def test_queues_that_were_read_over_the_network_begin_where_the_newest_manifest_says() -> None:
    reached = Reached({"orders": {"a": {"0": 10}}}, {"orders": {"a": "id"}})
    first = replace(EMPTY, queues=(QUEUE,))
    second = replace(EMPTY, run=2, queues=(replace(QUEUE, last_offset=8),), reached=reached)
    assert find_reached([first, second]) == reached
    found = make_start_options(reached, ["orders", "other"])
    assert {name: json.loads(text) for name, text in found.items()} == {
        "startingOffsets": reached.positions,
        "topicIds": reached.topic_ids,
    }
    assert make_start_options(reached, ["other"]) == {}
    logs = {"a": ["new", "old"]}
    assert (
        json.loads(make_start_options(replace(reached, logs=logs), ["orders"])["logEpochs"]) == logs
    )


def test_queues_that_came_from_files_begin_behind_their_last_message() -> None:
    logs = {"a": LogPosition({"*": 1000})}
    later = replace(QUEUE, first_offset=10, last_offset=14)
    manifests = [
        replace(
            EMPTY, queues=(QUEUE, replace(QUEUE, queue_id=1, last_offset=3)), log_positions=logs
        ),
        replace(EMPTY, run=2, queues=(later,), log_positions=logs),
    ]
    assert find_reached(manifests).positions == {"orders": {"a": {"0": 15, "1": 4}}}
    nameless = replace(QUEUE, broker="")
    with pytest.raises(PipelineError, match="archive it again with --broker-name"):
        find_reached([replace(EMPTY, queues=(nameless,), log_positions={"": LogPosition({})})])


def test_files_that_were_merged_or_have_expired_are_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, root = WrittenLog(tmp_path / "store"), tmp_path / "history"
    for topic in ("old", "orders", "orders"):
        log.add(4, topic=topic, store_time_ms=T0_MS if topic == "old" else T0_MS + 9)
        jobs.archive(root, path=log.root, broker_name="a")
    jobs.compact(root)
    jobs.expire(root, older_than_ms=5, now_ms=lambda: T0_MS + 9)
    read: list[ArchivedFile] = []
    monkeypatch.setattr(
        "rockhopper.pipeline.history.read_archive", lambda _, __, files: read.extend(files)
    )

    nothing: Any = None
    found = _history(nothing, str(root), ["old", "orders"])

    assert [(file.topic, file.rows) for file in read] == [("orders", 8)]
    assert found.reached.positions == {
        "old": {"a": {"0": 3, "1": 4}},
        "orders": {"a": {"0": 11, "1": 12}},
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": "earliest"}, "leave startingOffsets out"),
        ({"subscribe": "x"}, "leave subscribe out"),
        ({"subExpression": "a"}, "subExpression would be true of what brokers have"),
        ({"columns": "body,rawProperties"}, "no column 'rawProperties'"),
    ],
)
def test_options_that_a_view_has_no_use_for(options: dict[str, Any], says: str) -> None:
    nothing: Any = None
    with pytest.raises(PipelineError, match=says):
        history_view(nothing, "orders", archive="a", nameserver="n", **options)
