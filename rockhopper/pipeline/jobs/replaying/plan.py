"""What a replay is going to do, written down before it does anything, so that it can be resumed.

    <state>/plan.json      what was asked for, files, counts, the broker, how batches are cut
    <state>/selection/…    of files that are not replayed whole: the rows, as Parquet
    <state>/progress.json  how many batches are sent, where no broker remembers it
    <state>/lock

A batch is a run of messages in the plan's order; it has the same number and the same messages
whenever the job runs, which is what lets the broker tell that it has been published before.
"""

import hashlib
import json
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
class Request:
    """What was asked for: together with the files, this decides which message goes where."""

    source: str
    topics: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    key: str = ""
    where: str = ""
    to: Mapping[str, str] = field(default_factory=dict)
    """Old topic to new one; "*" stands for all that are not named."""

    @property
    def job_id(self) -> str:
        """A name for a replay that was given none: the same whenever the same is asked for."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def target(self, topic: str) -> str:
        """Where messages of a topic go."""
        return self.to.get(topic, self.to.get("*", topic))


@dataclass(frozen=True)
class PlannedFile:
    """A file and how many of its rows are replayed, all of them or those of the selection."""

    path: str
    topic: str | None
    rows: int
    selected_as: str = ""
    """How the selection names it; empty if all of its rows are replayed."""


@dataclass(frozen=True)
class Slice:
    """Messages [first, end) among those of a file that are replayed."""

    file: PlannedFile
    first: int
    end: int


@dataclass(frozen=True)
class Plan:
    """All of it."""

    job_id: str
    request: Request
    files: tuple[PlannedFile, ...]
    batch_rows: int
    broker: str
    """Where batches are published; empty for sending at least once."""
    queue_counts: Mapping[str, int]
    """Of each target topic."""
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What tells the target topics from others of their names, by topic and broker."""

    @property
    def rows(self) -> int:
        """How many messages are replayed."""
        return sum(each.rows for each in self.files)

    @property
    def owner(self) -> str:
        """What no other plan has: which messages are in which batch."""
        what = json.dumps(
            [asdict(self.request), [asdict(each) for each in self.files], self.batch_rows]
        )
        return f"the replay {hashlib.sha256(what.encode()).hexdigest()[:24]}"

    @property
    def batch_count(self) -> int:
        """How many batches that makes."""
        return -(-self.rows // self.batch_rows)

    def batch(self, number: int) -> list[Slice]:
        """The messages of a batch, in order."""
        first = number * self.batch_rows
        return _cut((Slice(each, 0, each.rows) for each in self.files), first, self.batch_rows)

    def to_json(self) -> bytes:
        """The document."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, name: str) -> "Plan":
        """The plan in a file called *name*. Raises PipelineError."""
        try:
            document = json.loads(data)
            if document.pop("format") != FORMAT:
                raise ValueError("another version wrote it")
            request = document["request"]
            document["request"] = Request(**{**request, "topics": tuple(request["topics"])})
            document["files"] = tuple(PlannedFile(**each) for each in document["files"])
            return cls(**document)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(
                f"{name} cannot be used ({error}): restore it from a copy, or begin anew with "
                "another --id, which replays every message once more"
            ) from error


def _cut(slices: Iterable[Slice], first: int, count: int) -> list[Slice]:
    """The messages [first, first + count) among those of *slices*."""
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


def shares(slices: Sequence[Slice], count: int) -> list[list[Slice]]:
    """Slices in order, shared out evenly over at most *count* tasks."""
    total = sum(each.end - each.first for each in slices)
    size = max(-(-total // max(count, 1)), 1)
    return [_cut(slices, first, size) for first in range(0, total, size)]


def batch_rows_for(row_bytes: float, rate: float | None) -> int:
    """How many messages a batch has: what is published at once, and no more than a second's."""
    rows = min(max(int(BATCH_BYTES / max(row_bytes, 1.0)), BATCH_ROWS_MIN), BATCH_ROWS_MAX)
    return rows if rate is None else max(min(rows, int(rate)), 1)
