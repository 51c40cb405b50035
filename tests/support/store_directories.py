"""Store directories for tests of recovery: written record by record, damaged, and recovered.

``LogWriter`` writes a commit log of small files without the broker. ``recover`` does the same with
a directory as opening a store.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rockhopper.broker.settings.store_layout import StoreLayout, file_name
from rockhopper.broker.store.files import checkpoint as checkpoints
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.recovering import inventory, recovery
from rockhopper.broker.store.recovering.queue_repair import QueueRules
from rockhopper.broker.store.recovering.recovery import RecoveryReport
from rockhopper.broker.store.recovering.recovery_start import LoadedStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from tests.support.records import encode_message
from tests.support.rot import overwrite

FILE_SIZE_BYTES = 4096
QUEUE_FILE_SIZE_BYTES = 200
BATCH_QUEUE_FILE_SIZE_BYTES = 460
INDEX_SHAPE = (16, 400)
T0 = 1_795_166_323_715
DELAYS_MS = (1_000, 5_000, 10_000, 30_000)


class Written(NamedTuple):
    """A written record."""

    offset: int
    size_bytes: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    key: str

    @property
    def end_offset(self) -> int:
        return self.offset + self.size_bytes


@dataclass
class LogWriter:
    """Writes records in order, a millisecond apart, and remembers them."""

    root: Path
    file_size_bytes: int = FILE_SIZE_BYTES
    base_offset: int = 0
    end: int = 0
    time_ms: int = T0
    written: list[Written] = field(default_factory=list, repr=False)
    queue_ends: dict[tuple[str, int], int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.end = self.end or self.base_offset
        StoreLayout(self.root).commit_log.mkdir(parents=True, exist_ok=True)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Keep hypothesis's reports short."""
        printer.text(f"LogWriter({str(self.root)!r})")

    def path_of(self, offset: int) -> Path:
        """Return the file that holds *offset*; create it if necessary."""
        base = offset - offset % self.file_size_bytes
        path = StoreLayout(self.root).commit_log / file_name(base)
        if not path.exists():
            path.write_bytes(bytes(self.file_size_bytes))
        return path

    def overwrite(self, offset: int, data: bytes) -> None:
        """Write bytes anywhere into the log."""
        overwrite(self.path_of(offset), offset % self.file_size_bytes, data)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of the log."""
        start = offset % self.file_size_bytes
        return self.path_of(offset).read_bytes()[start : start + size_bytes]

    def append(
        self,
        topic: str = "TopicA",
        queue_id: int = 0,
        body: bytes | None = None,
        *,
        tags: str = "TagA",
        sys_flag: int = 0,
        queue_offset: int | None = None,
        extra: str = "",
    ) -> Written:
        """Write one record, and roll to the next file like the broker."""
        number = len(self.written)
        body = f"body {number} ".encode() * 5 if body is None else body
        if queue_offset is None:
            queue_offset = self.queue_ends.get((topic, queue_id), 0)
            self.queue_ends[topic, queue_id] = queue_offset + 1
        key = f"key{number}"
        properties = f"KEYS\x01{key} all\x02UNIQ_KEY\x01U{number:08d}\x02TAGS\x01{tags}\x02{extra}"

        def encode(offset: int) -> bytes:
            return encode_message(
                topic=topic,
                body=body,
                properties=properties,
                queue_id=queue_id,
                queue_offset=queue_offset,
                commit_log_offset=offset,
                sys_flag=sys_flag,
                born_time_ms=self.time_ms,
                store_time_ms=self.time_ms,
                store_host=bytes.fromhex("0a00000100002a9f"),
            )

        size_bytes = len(encode(0))
        remaining = self.file_size_bytes - self.end % self.file_size_bytes
        if size_bytes + 8 > remaining:
            self.overwrite(self.end, BLANK_RECORD.pack(remaining, MAGIC_BLANK))
            self.end += remaining
        self.overwrite(self.end, encode(self.end))
        record = Written(self.end, size_bytes, topic, queue_id, queue_offset, body, key)
        self.written.append(record)
        self.end += size_bytes
        self.time_ms += 1
        return record

    def append_many(self, count: int, topics: int = 2, queues: int = 2) -> None:
        """Write records to some queues in turn."""
        for topic, queue_id in itertools.islice(
            itertools.cycle(itertools.product("ABCDEFGH"[:topics], range(queues))), count
        ):
            self.append(f"Topic{topic}", queue_id)


@dataclass
class Recovered:
    """A store directory after recovery, still open."""

    layout: StoreLayout
    files: MappedFileQueue
    queues: ConsumeQueueTable
    index: MessageIndex
    report: RecoveryReport
    is_deleted: Callable[[str, int], bool]

    def message(self, offset: int, size_bytes: int) -> StoredMessage | None:
        """Return the result of reading a unit: the verified message, or None."""
        file = self.files.file_at(offset)
        if file is None:
            return None
        start = offset - file.base_offset
        try:
            message = decode_message(file.read(start, start + size_bytes), check_crc=True)
        except Exception:
            return None
        if message.commit_log_offset != offset or message.size_bytes != size_bytes:
            return None
        return message

    def bodies(self, topic: str, queue_id: int) -> dict[int, bytes | None]:
        """Return queue offset -> body, None if the message is lost."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return {}
        found: dict[int, bytes | None] = {}
        for queue_offset in range(queue.min_offset, queue.max_offset):
            entry = queue.entry(queue_offset)
            message = self.message(*entry[:2]) if entry is not None else None
            if message is not None and (message.topic, message.queue_id, message.queue_offset) != (
                topic,
                queue_id,
                queue_offset,
            ):
                message = None
            found[queue_offset] = message.body if message is not None else None
        return found

    def find(self, topic: str, key: str) -> list[int]:
        """Return commit log offsets by key."""
        return self.index.query(topic, key, 1000, 0, 2**62)

    def close(self, *, clean: bool = True) -> None:
        """Stop like the broker, or like a killed one."""
        if clean:
            for _ in self.queues.flush_steps(thorough=True):
                pass
            self.index.flush()
            inventory.save_at_stop(
                self.layout, self.report.log_end, self.queues, self.index, self.is_deleted
            )
        self.queues.close()
        self.index.close()
        self.files.close()


def recover(
    root: Path,
    *,
    clean: bool = True,
    checkpoint: StoreCheckpoint | None = None,
    index_shape: tuple[int, int] = INDEX_SHAPE,
    is_deleted: Callable[[str, int], bool] = lambda topic, offset: False,
    is_batch_topic: Callable[[str], bool] = lambda topic: False,
    verify_bytes: int = recovery.VERIFY_BYTES,
    adopt_bytes: int = recovery.ADOPT_BYTES,
    queue_file_size_bytes: int = QUEUE_FILE_SIZE_BYTES,
) -> Recovered:
    """Load and recover a store directory."""
    layout = StoreLayout(root)
    files = MappedFileQueue(layout.commit_log, FILE_SIZE_BYTES)
    files.load()
    queues = ConsumeQueueTable(layout, queue_file_size_bytes, BATCH_QUEUE_FILE_SIZE_BYTES)
    queues.load()
    index = MessageIndex(layout.index, *index_shape, now_ms=lambda: T0)
    index.load(clean)
    if checkpoint is None:
        checkpoint = checkpoints.load(layout.checkpoint)
    report = recovery.recover(
        LoadedStore(layout, files, queues, index, checkpoint, inventory.load(layout), clean),
        QueueRules(
            is_batch_topic,
            is_deleted,
            lambda level: DELAYS_MS[min(level, len(DELAYS_MS)) - 1],
            lambda topic: is_deleted(topic, 0),
        ),
        verify_bytes=verify_bytes,
        adopt_bytes=adopt_bytes,
    )
    report.log(last_exit_clean=clean)
    return Recovered(layout, files, queues, index, report, is_deleted)


def queue_files(root: Path) -> dict[str, bytes]:
    """Return every file of every consume queue, by its path below *root*."""
    found = {}
    for kind in ("consumequeue", "batchconsumequeue"):
        for path in sorted((root / kind).rglob("*")):
            if path.is_file():
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


def written_store(root: Path, count: int = 40) -> LogWriter:
    """Write a store with *count* messages in four queues and several log files, stopped cleanly."""
    log = LogWriter(root)
    log.append_many(count)
    recover(root).close()
    return log


def assert_complete(store: Recovered, log: LogWriter, *, lost: tuple[Written, ...] = ()) -> None:
    """Check that each message is readable at its offset and found by key; the lost ones are not."""
    for (topic, queue_id), end in log.queue_ends.items():
        queue = store.queues.get(topic, queue_id)
        assert queue is not None
        assert queue.max_offset == end
        expected = {
            record.queue_offset: None if record in lost else record.body
            for record in log.written
            if (record.topic, record.queue_id) == (topic, queue_id)
        }
        assert store.bodies(topic, queue_id) == expected
    for record in log.written:
        assert record in lost or store.find(record.topic, record.key) == [record.offset]
