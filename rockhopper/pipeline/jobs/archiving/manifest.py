"""The manifests of an archive: one for each run, JSON of version 5.

    {"format": 5, "run": 3, "createdMs": …, "source": {…}, "columns": […], "value": {…} or null,
     "files": […], "removed": […], "queues": […], "positions": {…}, "undecoded": 0}

``files`` and ``queues`` are what this run added. ``positions`` hold how far the archive goes after
it, so the newest manifest gives the start of the next run; their ``ids`` and ``times`` identify the
topics. A file that no manifest lists does not count, nor does one that a later manifest has
``removed``. In a manifest that removes files, ``source`` has the kind ``compact``, and ``files``
hold the same messages, or the kind ``expire``, and the messages are gone.

In version 1, bodies had hashes of another kind (QueueSummary.crc_bits). In version 3, columns other
than bodies had a hash of their own (QueueSummary.columns_hash). From version 4 on, a SHA-256, as
``sha256sum`` prints it, covers the whole file. Version 5 adds ``removed``.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from rockhopper.paths import check_relative
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import name_damage
from rockhopper.pipeline.jobs.body_hash import CRC_BITS
from rockhopper.pipeline.jobs.results import as_document

FORMAT = 5
FORMATS = (1, 2, 3, 4, FORMAT)
COMPACTED = "compact"
EXPIRED = "expire"
FOLDED = "folded"

_CRC_BITS_OF_FORMAT_1 = 32
_CAPITAL = re.compile(r"[A-Z]")
_HASHES = {"bodyHash", "columnsHash"}

Positions = dict[str, dict[str, dict[str, int]]]
"""The next offset by topic, broker and queue."""


@dataclass(frozen=True)
class QueueSummary:
    """The archived part of one queue: in one file, in one run, or in all of them."""

    topic: str
    broker: str
    queue_id: int
    first_offset: int
    last_offset: int
    rows: int
    body_bytes: int
    body_hash: int
    """The sum of pipeline.jobs.body_hash over all messages."""
    min_store_ms: int
    max_store_ms: int
    crc_bits: int = CRC_BITS
    """See body_hash."""
    columns_hash: int | None = None
    """The sum of pipeline.jobs.column_hash over all messages, in manifests of format 3."""

    @property
    def queue(self) -> tuple[str, str, int]:
        """The topic, broker and queue id."""
        return self.topic, self.broker, self.queue_id

    def __add__(self, other: "QueueSummary") -> "QueueSummary":
        return replace(
            self,
            first_offset=min(self.first_offset, other.first_offset),
            last_offset=max(self.last_offset, other.last_offset),
            rows=self.rows + other.rows,
            body_bytes=self.body_bytes + other.body_bytes,
            body_hash=(self.body_hash + other.body_hash) % (1 << 64),
            min_store_ms=min(self.min_store_ms, other.min_store_ms),
            max_store_ms=max(self.max_store_ms, other.max_store_ms),
        )


@dataclass(frozen=True)
class ArchivedFile:
    """One Parquet file; ``path`` is relative to the archive's directory."""

    path: str
    topic: str
    date: str
    rows: int
    bytes: int
    min_store_ms: int
    max_store_ms: int
    queues: tuple[QueueSummary, ...]
    sha256: str | None = None
    """The hash of the whole file in hexadecimal; older archives have none."""
    place: str | None = None
    """For a merged file: the path of the file whose place it takes in the message order."""


@dataclass(frozen=True)
class LogPosition:
    """How far the log of a broker is archived, by selection (selection.py)."""

    offsets: Mapping[str, int]
    last_offset: int = -1
    """The offset of an archived record that identifies the log."""
    last_head: str = ""


@dataclass(frozen=True)
class Reached:
    """How far queues are archived over the network, and the identity of their topics."""

    positions: Positions = field(default_factory=dict)
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The ids of the topics, by topic and broker."""
    times: Positions = field(default_factory=dict)
    """For brokers without ids: the store times of the last messages before the positions."""
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The epochs of each broker's log in which they were read, newest first."""


@dataclass(frozen=True)
class Manifest:
    """The manifest of one run."""

    run: int
    created_ms: int
    source: Mapping[str, Any]
    columns: tuple[str, ...]
    value: Mapping[str, str] | None
    """The format and schema that decoded bodies into the column ``value``."""
    files: tuple[ArchivedFile, ...] = ()
    queues: tuple[QueueSummary, ...] = ()
    undecoded: int = 0
    log_positions: Mapping[str, LogPosition] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached)
    removed: tuple[str, ...] = ()
    """Paths of files of earlier runs that no longer count."""
    expired: tuple[QueueSummary, ...] = ()
    """In a manifest that replaces several: the messages that had expired by then."""

    @property
    def kind(self) -> str:
        """COMPACTED or EXPIRED for a run that removed files; otherwise the kind of the source.

        FOLDED for a manifest that replaces several.
        """
        return str(self.source.get("kind", ""))

    @property
    def rows(self) -> int:
        """The number of messages that the run added."""
        return sum(each.rows for each in self.files)

    @property
    def away(self) -> list[str]:
        """The brokers that were offline during the run."""
        return list(self.source.get("away", ()))

    def to_json(self) -> bytes:
        """Return the JSON document."""
        document = {"format": FORMAT, **as_document(self)}
        files = (file["queues"] for file in document["files"])
        for queue in chain(document["queues"], document["expired"], *files):
            for name in _HASHES:
                queue[name] = None if queue[name] is None else f"{queue[name]:016x}"
        reached = document.pop("reached")
        document["positions"] = {
            "log": document.pop("logPositions"),
            "queues": reached["positions"],
            "ids": reached["topicIds"],
            "times": reached["times"],
            "logs": reached["logs"],
        }
        return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, name: str) -> "Manifest":
        """Parse the manifest in a file called *name*. Raises PipelineError."""
        with name_damage(name, "restore it from a copy of the archive"):
            document = json.loads(data)
            version = document["format"]
            if version in FORMATS:
                return _manifest(document)
        raise PipelineError(
            f"{name} has the format {version}, and this version of the pipeline knows format "
            f"{FORMAT}: use a newer one"
        )


def _snake(document: Mapping[str, Any]) -> dict[str, Any]:
    return {_CAPITAL.sub(lambda at: f"_{at[0].lower()}", key): document[key] for key in document}


def _queue(document: Mapping[str, Any]) -> QueueSummary:
    given = {name: document[name] for name in _HASHES if document.get(name) is not None}
    hashes = {name: int(text, 16) for name, text in given.items()}
    values = _snake({**document, **hashes})
    return QueueSummary(**{"crc_bits": _CRC_BITS_OF_FORMAT_1, **values})


def _check_path(path: str) -> str:
    """Return the path of a file of messages. Raises ValueError if it is not one."""
    if check_relative(path)[:1] in "_.":
        raise ValueError(f"{path!r} is not a path of messages")
    return path


def _file(document: Mapping[str, Any]) -> ArchivedFile:
    queues = tuple(map(_queue, document["queues"]))
    file = ArchivedFile(**{**_snake(document), "queues": queues})
    _check_path(file.path)
    return file


def _manifest(document: Mapping[str, Any]) -> Manifest:
    files = tuple(map(_file, document["files"]))
    positions = document["positions"]
    return Manifest(
        run=int(document["run"]),
        created_ms=document["createdMs"],
        source=document["source"],
        columns=tuple(document["columns"]),
        value=document["value"],
        files=files,
        queues=tuple(_queue(each) for each in document["queues"]),
        undecoded=document["undecoded"],
        log_positions={
            name: LogPosition(**_snake(each)) for name, each in positions["log"].items()
        },
        reached=Reached(
            positions["queues"],
            positions.get("ids", {}),
            positions.get("times", {}),
            positions.get("logs", {}),
        ),
        removed=tuple(map(_check_path, document.get("removed", ()))),
        expired=tuple(map(_queue, document.get("expired", ()))),
    )


def list_left(manifests: Iterable[Manifest]) -> list[ArchivedFile]:
    """Return the files that count after these runs, in the order in which they were added."""
    found: dict[str, ArchivedFile] = {}
    for manifest in manifests:
        for path in manifest.removed:
            found.pop(path, None)
        found.update((file.path, file) for file in manifest.files)
    return list(found.values())


def list_expired(manifests: Iterable[Manifest]) -> list[ArchivedFile]:
    """Return the files whose messages have expired from the archive."""
    known: dict[str, ArchivedFile] = {}
    expired: list[ArchivedFile] = []
    for manifest in manifests:
        expired += _as_files(manifest.expired)
        if manifest.kind == EXPIRED:
            expired += [known[path] for path in manifest.removed if path in known]
        known.update((file.path, file) for file in manifest.files)
    return expired


def _as_files(queues: Sequence[QueueSummary]) -> list[ArchivedFile]:
    """Return placeholders for files of which only the queue summaries are known."""
    return [
        ArchivedFile(
            "", each.topic, "", each.rows, 0, each.min_store_ms, each.max_store_ms, (each,)
        )
        for each in queues
    ]


def fold_manifests(manifests: Sequence[Manifest]) -> Manifest:
    """Return one manifest that is equivalent to all up to the last of *manifests*.

    For files that no longer count, it keeps only the queue summaries.
    """
    last = manifests[-1]
    expired: dict[int, list[QueueSummary]] = {}
    for file in list_expired(manifests):
        for queue in file.queues:
            expired.setdefault(queue.crc_bits, []).append(replace(queue, columns_hash=None))
    return replace(
        last,
        source={**last.source, "kind": FOLDED},
        files=tuple(list_left(manifests)),
        queues=merge_summaries([queue for manifest in manifests for queue in manifest.queues]),
        undecoded=sum(manifest.undecoded for manifest in manifests),
        removed=(),
        expired=tuple(chain(*map(merge_summaries, expired.values()))),
    )


def make_removing_manifest(
    current: Manifest, kind: str, removed: Sequence[ArchivedFile], keep_old_ms: int, now_ms: int
) -> Manifest:
    """Return the manifest of a run after *current* that only removes *removed*."""
    source = {"kind": kind, "keepOldMs": keep_old_ms, "away": current.away}
    return replace(
        current,
        run=current.run + 1,
        created_ms=now_ms,
        source=source,
        files=(),
        queues=(),
        undecoded=0,
        removed=tuple(file.path for file in removed),
    )


_PART = re.compile(r"part-(\d+)-(\d+)-(\d+)\.parquet")


def make_stored_key(file: ArchivedFile) -> tuple[object, ...]:
    """Return a sort key that puts files in the order in which messages were stored."""

    def numbers(path: str) -> tuple[int, ...]:
        found = _PART.search(path)
        return tuple(map(int, found.groups())) if found else (0, 0, 0)

    run, task, number = numbers(file.place or file.path)
    return run, task, file.topic, file.date, number, numbers(file.path)


def merge_summaries(summaries: list[QueueSummary]) -> tuple[QueueSummary, ...]:
    """Return one summary for each queue, sorted."""
    by_queue: dict[tuple[str, str, int], QueueSummary] = {}
    for each in summaries:
        before = by_queue.get(each.queue)
        by_queue[each.queue] = each if before is None else before + each
    return tuple(by_queue[queue] for queue in sorted(by_queue))
