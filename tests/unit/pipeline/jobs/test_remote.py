"""Tasks in a session of Spark Connect, with a stand-in for the server."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline import PipelineError
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.remote import connect_session, default_parallelism, run_remotely


class Session:
    """Has the tasks done here, the last one first and one of them twice."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.interrupted: list[str] = []
        self.handlers: list[Any] = []
        self.error: BaseException | None = None

    def range(self, start: int, end: int, step: int, parts: int) -> "Session":
        assert (start, step, parts) == (0, 1, end)
        self._count = end
        return self

    def mapInArrow(  # noqa: N802
        self, do: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
    ) -> Any:
        assert schema == "id long, result binary"
        if self.error is not None:
            raise self.error
        rows = []
        for number in reversed(range(self._count)):
            (batch,) = do(iter([pa.RecordBatch.from_pydict({"id": [number]})]))
            rows += [SimpleNamespace(**row) for row in batch.to_pylist()]
            for handler in self.handlers:
                done = SimpleNamespace(num_completed_tasks=len(rows))
                handler(stages=[done], inflight_tasks=1, operation_id="", done=False)
        return SimpleNamespace(collect=lambda: [*rows, rows[0]])

    def addTag(self, tag: str) -> None:  # noqa: N802
        self.tags.append(tag)

    def removeTag(self, tag: str) -> None:  # noqa: N802
        self.tags.remove(tag)

    def interruptTag(self, tag: str) -> None:  # noqa: N802
        self.interrupted.append(tag)

    def registerProgressHandler(self, handler: Any) -> None:  # noqa: N802
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Any) -> None:  # noqa: N802
        self.handlers.remove(handler)


class Reached(JobProgress):
    """Notes how far it is."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def reach(self, done: int, note: str = "") -> None:
        self.seen.append(done)


def test_results_come_in_the_order_of_the_tasks_and_progress_is_told() -> None:
    session: Any = Session()
    progress = Reached()
    found = run_remotely(session, ["a", "bb", "ccc"], len, progress)
    assert found == [1, 2, 3]
    assert progress.seen == [1, 2, 3]
    assert (session.tags, session.handlers, session.interrupted) == ([], [], [])


def test_an_interrupted_job_is_interrupted_on_the_server() -> None:
    session: Any = Session()
    session.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run_remotely(session, ["a"], len, JobProgress())
    assert len(session.interrupted) == 1
    assert (session.tags, session.handlers) == ([], [])


@pytest.mark.parametrize("address", ["sc://127.0.0.1:1", "sc://127.0.0.1:port", "sc://"])
def test_where_no_server_is_the_sentence_says_so(address: str) -> None:
    with pytest.raises(PipelineError, match="no server of Spark Connect at"):
        connect_session(address)


def test_how_many_tasks_run_at_a_time_is_how_a_range_is_cut() -> None:
    counted = SimpleNamespace(distinct=lambda: SimpleNamespace(count=lambda: 3))
    session: Any = SimpleNamespace(range=lambda _: SimpleNamespace(selectExpr=lambda _: counted))
    assert default_parallelism(session) == 3
