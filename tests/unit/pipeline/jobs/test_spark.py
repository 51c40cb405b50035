"""What Spark's UI says of the jobs that our jobs start."""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.pipeline.jobs import spark
from rockhopper.pipeline.jobs.spark import described

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
    with suppress(ValueError), described(session, "archiving orders"):
        assert context.properties[DESCRIPTION] == "archiving orders"
        context.setLocalProperty(GROUP, "ours")
        raise ValueError("a task failed")
    assert context.properties[DESCRIPTION] == "the notebook's"
    assert context.properties[GROUP] == "mine"


def test_nothing_is_left_behind_where_nothing_was() -> None:
    context = Context()
    session: Any = SimpleNamespace(sparkContext=context)
    with described(session, "archiving orders"):
        pass
    assert set(context.properties.values()) == {None}
