"""How tasks are done: here while they are few, on Spark where somebody asks for it."""

from typing import Any
from unittest import mock

import pytest

from rockhopper.pipeline.jobs.options import JobOptions
from rockhopper.pipeline.jobs.tasks import (
    SMALL_BYTES,
    is_small,
    run_in_this_process,
    runner,
    size_of,
)
from rockhopper.pipeline.store_source.pieces import FilePiece


@pytest.fixture(autouse=True)
def not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_what_is_little_is_done_right_here() -> None:
    assert is_small(JobOptions(), SMALL_BYTES)
    assert not is_small(JobOptions(), SMALL_BYTES + 1)


@pytest.mark.parametrize(("spark", "master"), [("a session", None), (None, "local[1]")])
def test_who_names_spark_gets_it(spark: Any, master: str | None) -> None:
    assert not is_small(JobOptions(spark=spark, master=master), 1)


def test_a_submitted_job_is_done_on_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not is_small(JobOptions(), 1)


def test_tasks_are_done_one_after_the_other_and_results_keep_their_order() -> None:
    run = runner("search", JobOptions(), size_bytes=1)
    assert run is run_in_this_process
    assert run([3, 1, 2], str, "writing numbers") == ["3", "1", "2"]


def test_no_tasks_start_no_spark() -> None:
    run = runner("search", JobOptions(master="local[1]"), size_bytes=1)
    assert run([], str, "") == []


def test_a_size_is_the_sum_of_all_pieces() -> None:
    first = mock.Mock(FilePiece, start=10, end=100)
    second = mock.Mock(FilePiece, start=5, end=20)
    assert size_of([[first, second], [], [first]]) == 90 + 15 + 90
