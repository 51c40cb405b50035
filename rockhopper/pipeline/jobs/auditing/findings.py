"""The findings of an audit: places, problems and remedies."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.jobs.results import as_document

KEPT_MAX = 200
"""The number of findings of a kind that each task keeps; all are counted."""


class FaultKind(StrEnum):
    """The kind of a fault."""

    LOG_DAMAGE = "log damage"
    TORN_TAIL = "torn tail"
    FOREIGN_FILE = "foreign file"
    BODY = "body"
    RECORD = "record"
    SYS_FLAG = "sys flag"
    CONFLICT = "conflict"
    UNIT_MISSING = "unit missing"
    UNIT_WRONG = "unit wrong"
    UNIT_SURPLUS = "unit surplus"
    MESSAGE_LOST = "message lost"
    INDEX_FILE = "index file"
    INDEX_MISSING = "index missing"
    INDEX_SURPLUS = "index surplus"
    ARCHIVE_FILE = "archive file"
    ARCHIVE_FOREIGN = "archive foreign"
    ARCHIVE_MISSING = "archive missing"
    ARCHIVE_DIFFERS = "archive differs"


_REBUILD = "stop the broker and run: rockhopper-broker store rebuild STORE --write"
_UNIT_KINDS = (FaultKind.UNIT_MISSING, FaultKind.UNIT_WRONG, FaultKind.UNIT_SURPLUS)
REMEDIES: dict[FaultKind, str] = {
    FaultKind.LOG_DAMAGE: (
        "restore the file from a replica or a backup; otherwise its messages are lost"
    ),
    FaultKind.TORN_TAIL: "nothing: the broker cuts it off when it starts",
    FaultKind.FOREIGN_FILE: "move it away: RocketMQ does not start over it",
    FaultKind.BODY: "restore the file from a replica or a backup, or have the message sent again",
    FaultKind.RECORD: "restore the file from a replica or a backup, or have the message sent again",
    FaultKind.SYS_FLAG: (
        "restore the file from a replica or a backup: this flag determines how the body is read"
    ),
    **dict.fromkeys((FaultKind.CONFLICT, *_UNIT_KINDS), _REBUILD),
    FaultKind.MESSAGE_LOST: "restore the damaged file of the log; consumers step over the place",
    **dict.fromkeys(
        (FaultKind.INDEX_FILE, FaultKind.INDEX_MISSING, FaultKind.INDEX_SURPLUS), _REBUILD
    ),
    FaultKind.ARCHIVE_FILE: (
        "restore the file from a copy of the archive, or archive again elsewhere"
    ),
    FaultKind.ARCHIVE_FOREIGN: "move it out of the archive",
    FaultKind.ARCHIVE_MISSING: "archive again into another directory while the log still has them",
    FaultKind.ARCHIVE_DIFFERS: "find out which side is damaged; archive again if the log is sound",
}
HARMLESS = frozenset({FaultKind.TORN_TAIL})


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault at one place; fields that do not apply are None."""

    kind: FaultKind
    reason: str
    path: str | None = None
    file_offset: int | None = None
    commit_log_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    """The number of affected messages, units, entries or bytes of the log."""

    @property
    def remedy(self) -> str:
        """The remedy for this kind of fault."""
        return REMEDIES[self.kind]

    def document(self) -> dict[str, Any]:
        """Return the finding as a JSON document."""
        said = {"kind": str(self.kind), "reason": self.reason, "remedy": self.remedy}
        return {**said, **as_document(self)}

    def text(self) -> str:
        """Return place and reason in one line."""
        place = []
        if self.path is not None:
            at = "" if self.file_offset is None else f" at byte {self.file_offset}"
            place.append(f"{self.path}{at}")
        if self.commit_log_offset is not None:
            place.append(f"commit log offset {self.commit_log_offset}")
        if self.topic is not None:
            queue = "" if self.queue_id is None else f", queue {self.queue_id}"
            offset = "" if self.queue_offset is None else f", offset {self.queue_offset}"
            place.append(f"topic {self.topic}{queue}{offset}")
        return f"{'; '.join(place)}: {self.reason}"


@dataclass(slots=True)
class AuditFindings:
    """Collects findings: the first ones of each kind, and the count of all."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Findings by kind, kept or not."""

    def record(self, finding: Finding) -> None:
        """Add a finding."""
        self.counts[finding.kind] += 1
        if self.counts[finding.kind] <= KEPT_MAX:
            self.kept.append(finding)

    def extend(self, other: "AuditFindings") -> None:
        """Add the findings of another task."""
        self.kept += other.kept
        self.counts += other.counts

    def forget_units(self, topic: str, queue_id: int, first: int, behind: int) -> None:
        """Remove the findings about the units [first, behind) of a queue."""
        kinds = (FaultKind.UNIT_MISSING, FaultKind.UNIT_WRONG)
        kept = [
            one
            for one in self.kept
            if one.kind not in kinds
            or (one.topic, one.queue_id) != (topic, queue_id)
            or not first <= (one.queue_offset or 0) < behind
        ]
        self.counts.subtract(one.kind for one in self.kept)
        self.counts.update(one.kind for one in kept)
        self.kept = kept


def find_runs(mask: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each run of true values in a mask."""
    padded = np.zeros(len(mask) + 2, np.int8)
    padded[1:-1] = mask
    edges = np.flatnonzero(np.diff(padded))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
