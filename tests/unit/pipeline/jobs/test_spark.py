"""What Spark's UI says of the jobs that our jobs start."""

import re
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs import spark
from rockhopper.pipeline.jobs.spark import describe_jobs, run_tasks, spark_problem

DESCRIPTION = "spark.job.description"
GROUP = "spark.jobGroup.id"


class Context:
    """The properties of a thread's jobs."""

    def __init__(self, **properties: str | None) -> None:
        self.properties: dict[str, str | None] = dict(properties)

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
        self.properties[name] = value


@pytest.fixture(autouse=True)
def _java_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_has_java", lambda _: True)


def test_jobs_are_described_and_the_callers_own_again_as_they_were() -> None:
    context = Context(**{DESCRIPTION: "the notebook's", GROUP: "mine"})
    session: Any = SimpleNamespace(sparkContext=context)
    with suppress(ValueError), describe_jobs(session, "archiving orders"):
        assert context.properties[DESCRIPTION] == "archiving orders"
        context.setLocalProperty(GROUP, "ours")
        raise ValueError("a task failed")
    assert context.properties[DESCRIPTION] == "the notebook's"
    assert context.properties[GROUP] == "mine"


def test_nothing_is_left_behind_where_nothing_was() -> None:
    context = Context()
    session: Any = SimpleNamespace(sparkContext=context)
    with describe_jobs(session, "archiving orders"):
        pass
    assert set(context.properties.values()) == {None}


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("x\nrockhopper.pipeline.errors.PipelineError: no topic 'a'\n\tat j", "^no topic 'a'$"),
        ("Python worker exited unexpectedly (crashed)", "on fewer cores"),
        ("java.io.IOException: No space left on device", "make room"),
        (
            "aborted\nTraceback (most recent call last)\nValueError: bad",
            "gave up: ValueError: bad",
        ),
        (": org.apache.spark.SparkException: lost task\n\tat x", "gave up: lost task;"),
        ("only this.\nand that", "gave up: only this;"),
        ("", "gave up: RuntimeError;"),
    ],
)
def test_what_spark_raised_becomes_one_sentence(raised: str, said: str) -> None:
    assert re.search(said, str(spark_problem(RuntimeError(raised))))


def test_a_problem_of_ours_is_said_as_it_is() -> None:
    problem = PipelineError("create the topic")
    assert spark_problem(problem) is problem


def test_no_tasks_need_no_session() -> None:
    no_session: Any = None
    assert run_tasks(no_session, [], lambda task: task) == []
