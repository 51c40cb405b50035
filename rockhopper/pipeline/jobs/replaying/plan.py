"""The plan of a replay, stored before the replay starts, so that it can be resumed.

    <state>/plan.json      request, files, counts, the broker, the size of batches
    <state>/selection/…    for files that are replayed partly: the rows, as Parquet
    <state>/progress.json  the number of sent batches, if no broker stores it
    <state>/lock

A batch is a run of messages in the order of the plan. It has the same number and the same messages
in every run of the job. So the broker can recognise a batch that it has published.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from rockhopper.pipeline.errors import PipelineError

FORMAT = 1
PLAN_FILE = "plan.json"
PROGRESS_FILE = "progress.json"
SELECTION_DIRECTORY = "selection"
LOCK_FILE = "lock"
BATCH_BYTES = 32 << 20
BATCH_ROWS_MAX = 50_000
BATCH_ROWS_MIN = 100


@dataclass(frozen=True)
class ReplayRequest:
    """The request; together with the files it determines which message goes where."""

    source: str
    topics: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    key: str = ""
    where: str = ""
    to: Mapping[str, str] = field(default_factory=dict)
    """Old topic -> new topic; "*" stands for all others."""

    @property
    def span_ms(self) -> tuple[float, float]:
        """The start and the end; infinite where the request leaves them open."""
        start = -math.inf if self.start_ms is None else self.start_ms
        return start, math.inf if self.end_ms is None else self.end_ms

    @property
    def job_id(self) -> str:
        """The default name of a replay; equal requests have equal names."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def target(self, topic: str) -> str:
        """Return the target of a topic's messages."""
        return self.to.get(topic, self.to.get("*", topic))


@dataclass(frozen=True)
class PlannedFile:
    """A file and the number of rows to replay: all, or those of the selection."""

    path: str
    topic: str | None
    rows: int
    selected_as: str = ""
    """The name of the file in the selection; empty if all of its rows are replayed."""


@dataclass(frozen=True)
class Slice:
    """Messages [first, end) among the replayed ones of a file."""

    file: PlannedFile
    first: int
    end: int


@dataclass(frozen=True)
class ReplayPlan:
    """The plan of a replay."""

    job_id: str
    request: ReplayRequest
    files: tuple[PlannedFile, ...]
    batch_rows: int
    broker: str
    """The broker that publishes batches; empty for at-least-once delivery."""
    queue_counts: Mapping[str, int]
    """The number of queues of each target topic."""
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The ids of the target topics, by topic and broker."""

    @property
    def rows(self) -> int:
        """The number of messages to replay."""
        return sum(each.rows for each in self.files)

    @property
    def owner(self) -> str:
        """The owner of the batches: unique for each assignment of messages to batches."""
        what = json.dumps(
            [asdict(self.request), [asdict(each) for each in self.files], self.batch_rows]
        )
        return f"the replay {hashlib.sha256(what.encode()).hexdigest()[:24]}"

    @property
    def batch_count(self) -> int:
        """The number of batches."""
        return -(-self.rows // self.batch_rows)

    def batch(self, number: int) -> list[Slice]:
        """Return the messages of a batch, in order."""
        first = number * self.batch_rows
        return _cut((Slice(each, 0, each.rows) for each in self.files), first, self.batch_rows)

    def to_json(self) -> bytes:
        """Return the JSON document."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, name: str) -> "ReplayPlan":
        """Parse the plan in a file called *name*. Raises PipelineError."""
        try:
            document = json.loads(data)
            if document.pop("format") != FORMAT:
                raise ValueError("another version wrote it")
            request = document["request"]
            document["request"] = ReplayRequest(**{**request, "topics": tuple(request["topics"])})
            document["files"] = tuple(PlannedFile(**each) for each in document["files"])
            return cls(**document)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(
                f"{name} cannot be used ({error}): restore it from a copy, or start over with "
                "another --id, which replays every message once more"
            ) from error


def _cut(slices: Iterable[Slice], first: int, count: int) -> list[Slice]:
    """Return the messages [first, first + count) of *slices*."""
    found = []
    end = first + count
    start = 0
    for each in slices:
        rows = each.end - each.first
        low, high = max(first - start, 0), min(end - start, rows)
        if low < high:
            found.append(Slice(each.file, each.first + low, each.first + high))
        start += rows
        if start >= end:
            break
    return found


def share_slices(slices: Sequence[Slice], count: int) -> list[list[Slice]]:
    """Distribute slices evenly, and in order, over at most *count* tasks."""
    total = sum(each.end - each.first for each in slices)
    size = max(-(-total // max(count, 1)), 1)
    return [_cut(slices, first, size) for first in range(0, total, size)]


def batch_rows_for(row_bytes: float, rate: float | None) -> int:
    """Return the number of messages in a batch; with *rate*, at most those of one second."""
    rows = min(max(int(BATCH_BYTES / max(row_bytes, 1.0)), BATCH_ROWS_MIN), BATCH_ROWS_MAX)
    return rows if rate is None else max(min(rows, int(rate)), 1)
