"""Staged parts: messages that wait to be published, in a file for each part of a batch.

``<store>/rockhopper/sinks/<sink key>-<batch id>-<part>.part``, where the sink key is the start of
the SHA-256 of the sink's id. A file is a sequence of entries, one for each request that added to
it:

    offset  size  field
         0     4  size of the messages that follow this head
         4     4  CRC-32 of them
         8     4  sequence: 0, 1, 2 …
        12     4  how many messages
        16     …  messages, the body of the SINK_STAGE request (protocol/bodies/sinks.py)

An entry is readable once ``write`` has returned; it is on disk only after ``sync``. The next start
truncates an entry that a crash left incomplete, and its writer finds fewer messages than it
counted.
"""

import hashlib
import os
import re
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.descriptors import descriptor_needed
from rockhopper.broker.store.log.fast_encoding import crc32
from rockhopper.protocol.bodies.sinks import (
    SinkMessage,
    SinkRun,
    decode_sink_item,
    split_sink_items,
)

log = structlog.get_logger("broker.sinks")

_HEAD = struct.Struct(">IIII")
_NAME = re.compile(r"([0-9a-f]{24})-(\d{1,19})-([0-9A-Za-z._]{1,100})\.part").fullmatch
_PART = re.compile(r"[0-9A-Za-z._]{1,100}").fullmatch


def sink_key(sink_id: str) -> str:
    """Return the key of a sink's id in file names and in the property of its messages."""
    return hashlib.sha256(sink_id.encode()).hexdigest()[:24]


def is_part_name(name: str) -> bool:
    """Whether a part may have this name."""
    return _PART(name) is not None


class StagedPart:
    """One staged part: its file, and the state of its content."""

    __slots__ = (
        "message_count",
        "path",
        "sequence",
        "size_bytes",
        "synced_bytes",
        "topics",
        "touched_ms",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self.synced_bytes = 0
        """The size up to which a sync has been requested."""
        self.message_count = 0
        self.sequence = 0
        self.touched_ms = 0
        self.topics: set[str] | None = set()
        """The topics of its messages; None for a part that an earlier process began."""


# (sink key, batch id, name)
PartKey = tuple[str, int, str]


class StagedParts:
    """All staged parts. All methods except ``sync`` belong to the event loop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._parts: dict[PartKey, StagedPart] = {}
        self.size_bytes = 0

    def load(self, now_ms: int) -> None:
        """Find the parts that an earlier process staged. Raises OSError."""
        if not self.directory.is_dir():
            return
        for path in sorted(self.directory.iterdir()):
            named = _NAME(path.name)
            if named is None:
                continue
            part = StagedPart(path)
            part.touched_ms = now_ms
            part.topics = None
            for sequence, count, data in entries(path):
                part.size_bytes += _HEAD.size + len(data)
                part.message_count += count
                part.sequence = sequence + 1
            if part.size_bytes < path.stat().st_size:
                log.warning("the incomplete end of a staged part was cut", file=path.name)
                os.truncate(path, part.size_bytes)
            self._parts[named[1], int(named[2]), named[3]] = part
            self.size_bytes += part.size_bytes

    def get(self, key: PartKey) -> StagedPart | None:
        """Return the part; None if nothing is staged for it."""
        return self._parts.get(key)

    def keys(self, sink: str, batch_id: int | None = None) -> list[PartKey]:
        """Return the parts of a sink, or of one of its batches."""
        return [key for key in self._parts if key[0] == sink and batch_id in (None, key[1])]

    def list_for_topic(self, topic: str) -> list[PartKey]:
        """Return the parts that have, or may have, messages for a topic."""
        return [
            key for key, part in self._parts.items() if part.topics is None or topic in part.topics
        ]

    def append_entry(
        self,
        key: PartKey,
        sequence: int,
        data: bytes,
        count: int,
        topics: Collection[str],
        now_ms: int,
    ) -> StagedPart:
        """Append one entry to a part: *count* messages for *topics*.

        Raises:
            OSError: the entry is not in the part.
        """
        part = self._parts.get(key)
        if part is None:
            disk.make_directories(self.directory)
            sink, batch_id, name = key
            part = StagedPart(self.directory / f"{sink}-{batch_id}-{name}.part")
        head = _HEAD.pack(len(data), crc32(data), sequence, count)
        descriptor = os.open(part.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            disk.append_whole(descriptor, part.size_bytes, head + data)
        finally:
            os.close(descriptor)
        self._parts[key] = part
        part.size_bytes += len(head) + len(data)
        part.message_count += count
        part.sequence = sequence + 1
        part.touched_ms = now_ms
        if part.topics is not None:
            part.topics.update(topics)
        self.size_bytes += len(head) + len(data)
        return part

    def sync(self, paths: list[Path]) -> None:
        """Make parts durable. Blocks. Raises OSError."""
        for path in paths:
            with descriptor_needed():
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                disk.sync_file(descriptor)
            finally:
                os.close(descriptor)
        disk.sync_directory(self.directory)

    def forget(self, keys: list[PartKey]) -> list[Path]:
        """Forget parts; return their files, which the caller must delete."""
        paths: list[Path] = []
        for key in keys:
            part = self._parts.pop(key, None)
            if part is not None:
                self.size_bytes -= part.size_bytes
                paths.append(part.path)
        return paths

    def list_untouched_since(self, time_ms: int) -> list[PartKey]:
        """Return the parts that have not been extended since."""
        return [key for key, part in self._parts.items() if part.touched_ms < time_ms]


def items(path: Path) -> Iterator[SinkMessage | SinkRun]:
    """Yield the content of each complete entry of a part. Raises OSError."""
    for _, _, data in entries(path):
        yield from map(decode_sink_item, split_sink_items(data))


def find_topics(path: Path) -> set[str]:
    """Return the topics of the messages of a part. Raises OSError."""
    return {item.topic for item in items(path)}


def entries(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (sequence, message count, messages) of each complete entry. Raises OSError."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            size_bytes, crc, sequence, count = _HEAD.unpack(head)
            data = file.read(size_bytes)
            if len(data) != size_bytes or crc32(data) != crc:
                return
            yield sequence, count, data
