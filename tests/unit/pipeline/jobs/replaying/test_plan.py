"""Plans: which message is in which batch and task, and what is written down of that."""

import json
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.replaying.plan import (
    FORMAT,
    PlannedFile,
    ReplayPlan,
    ReplayRequest,
    batch_rows_for,
    share_slices,
)


def plan(*rows: int, batch_rows: int = 10) -> ReplayPlan:
    files = tuple(PlannedFile(f"f{number}", "t", count) for number, count in enumerate(rows))
    return ReplayPlan("id", ReplayRequest("archive"), files, batch_rows, "broker-a", {"t": 4})


def cut(slices: list[Any]) -> list[tuple[str, int, int]]:
    return [(each.file.path, each.first, each.end) for each in slices]


def test_batches_are_runs_of_messages_over_files() -> None:
    planned = plan(7, 25, 2)

    assert [cut(planned.batch(number)) for number in range(planned.batch_count)] == [
        [("f0", 0, 7), ("f1", 0, 3)],
        [("f1", 3, 13)],
        [("f1", 13, 23)],
        [("f1", 23, 25), ("f2", 0, 2)],
    ]
    assert plan().batch_count == 0


def test_the_last_batch_and_one_behind_it() -> None:
    planned = plan(0, 20)

    assert cut(planned.batch(1)) == [("f1", 10, 20)]
    assert cut(planned.batch(2)) == []
    assert planned.batch_count == 2


def test_tasks_share_a_batch_in_order() -> None:
    slices = plan(7, 25, 2, batch_rows=34).batch(0)

    assert [cut(share) for share in share_slices(slices, 3)] == [
        [("f0", 0, 7), ("f1", 0, 5)],
        [("f1", 5, 17)],
        [("f1", 17, 25), ("f2", 0, 2)],
    ]
    assert len(share_slices(slices, 100)) == 34
    assert share_slices([], 3) == share_slices([], 0) == []


def test_plans_survive_being_written_down() -> None:
    planned = ReplayPlan(
        "id",
        ReplayRequest("archive", ("a",), 1, None, "k", "x > 1", {"a": "b"}),
        (PlannedFile("f", None, 3, "file:/f"),),
        10,
        "broker-a",
        {"b": 4},
    )

    assert ReplayPlan.from_json(planned.to_json(), "plan.json") == planned


def test_the_same_request_has_the_same_id_and_others_have_others() -> None:
    one = ReplayRequest("archive", ("a",), key="k")

    assert one.job_id == ReplayRequest("archive", ("a",), key="k").job_id
    assert one.job_id != ReplayRequest("archive", ("a",), where="k").job_id


def test_batches_have_a_size_and_last_no_longer_than_a_second() -> None:
    assert batch_rows_for(400.0, None) == 50_000
    assert batch_rows_for(1 << 20, None) == 100
    assert batch_rows_for(4096.0, None) == 8192
    assert batch_rows_for(400.0, 200.0) == 200
    assert batch_rows_for(400.0, 0.1) == 1


def test_a_topic_goes_where_its_name_says_else_where_all_go_else_where_it_was() -> None:
    request = ReplayRequest("archive", to={"a": "b", "*": "rest"})

    assert [request.target(topic) for topic in ("a", "b", "*")] == ["b", "rest", "rest"]
    assert ReplayRequest("archive").target("a") == "a"


def test_no_other_plan_has_the_same_owner() -> None:
    owners = {each.owner for each in (plan(7), plan(8), plan(7, 0), plan(7, batch_rows=9))}

    assert len(owners) == 4
    assert plan(7).owner in owners


WRITTEN = {
    "format": FORMAT,
    "job_id": "id",
    "request": {"source": "archive", "topics": []},
    "files": [],
    "batch_rows": 10,
    "broker": "",
    "queue_counts": {},
}


def test_a_plan_of_before_there_were_ids_of_topics() -> None:
    found = ReplayPlan.from_json(json.dumps(WRITTEN).encode(), "plan.json")

    assert (found.request, found.topic_ids) == (ReplayRequest("archive"), {})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "Expecting value"),
        (b"[]", "integer"),
        (b"1", "pop"),
        (json.dumps({**WRITTEN, "format": 2}).encode(), "another version wrote it"),
        (json.dumps({**WRITTEN, "files": [{"path": "f"}]}).encode(), "missing"),
        (json.dumps({**WRITTEN, "more": 1}).encode(), "more"),
    ],
)
def test_a_plan_that_cannot_be_used(data: bytes, says: str) -> None:
    with pytest.raises(PipelineError, match=rf"^plan.json cannot be used \(.*{says}.*another --id"):
        ReplayPlan.from_json(data, "plan.json")
