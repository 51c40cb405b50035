"""ConsumeQueueTable: all consume queues of a store, by topic and queue id.

A store may have tens of thousands of queues, most of them idle. A queue costs an object and, once
used, a mapping. ``release_idle`` unmaps idle queues, and ``Mappings`` unmaps the least recently
used ones if there are too many. Queues with something to flush add themselves to a list, so clean
queues cost nothing in a flush.

After a clean stop most queues are *asleep*: of each, the table has only the offsets that the stop
noted (``ConsumeQueue.short_state``). The first access to a queue wakes those of its topic, that is,
makes their objects; nothing is read for it. Two topics of a store, 3 messages in one queue and 5 in
another, may be asleep as ``{"A": {"0": (0, 3, 600)}, "B": {"0": (0, 5, 1600)}}``. A send to A wakes
A; B stays asleep until something asks for its queue, or iterates over all queues.

Threads: everything belongs to the thread that appends, except ``flush_steps``.
"""

import contextlib
import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout, queue_directory
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError, TooManyOpenFilesError
from rockhopper.broker.store.files.mapped_file import Mappings
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.deleted_topics import DeletedQueues, move_queues_aside
from rockhopper.broker.store.queues.unit_files import MappedUnits
from rockhopper.broker.store.queues.unit_queue import UnitQueue

log = structlog.get_logger("broker.store")

LEAST_PAGES = 2
QUEUES_PER_PIECE = 5000
# Below it, syncing the files one by one takes less time than others' data in the file system may.
SYNCED_TOGETHER_MIN = 64


class StoppedQueues(NamedTuple):
    """The queues of a store that was stopped cleanly."""

    store_time_ms: int
    """That of the newest message."""
    file_sizes_bytes: tuple[int, int]
    short: dict[str, dict[str, tuple[int, int, int]]]
    """By topic and queue id, those that have only their first file: ``UnitQueue.short_state``."""
    others: dict[str, list[int]]
    batch: dict[str, list[int]]


class _QueueKind:
    """Directory and file size of the queues of one kind."""

    def __init__(
        self,
        of: type[ConsumeQueue] | type[BatchConsumeQueue],
        directory: Path,
        file_size_bytes: int,
    ) -> None:
        self.of = of
        self.directory = directory
        unit_size = of.UNIT_SIZE_BYTES
        self.file_size_bytes = max(-(-file_size_bytes // unit_size), 1) * unit_size


class ConsumeQueueTable:
    """The queues found in a store directory, and those made since."""

    def __init__(
        self,
        layout: StoreLayout,
        file_size_bytes: int,
        batch_file_size_bytes: int,
        mappings: Mappings | None = None,
    ) -> None:
        """Sizes are rounded up to whole units and apply until ``load`` finds files of another size.

        The queues share the descriptors of *mappings*.
        """
        self._layout = layout
        self._kinds = (
            _QueueKind(ConsumeQueue, layout.consume_queues, file_size_bytes),
            _QueueKind(BatchConsumeQueue, layout.batch_consume_queues, batch_file_size_bytes),
        )
        self._topics: dict[str, dict[int, UnitQueue]] = {}
        self._asleep: dict[str, dict[str, tuple[int, int, int]]] = {}
        self._asleep_offsets: dict[tuple[str, int], int] = {}
        self.asleep_end = -1
        """Where the last record of the queues that were asleep at first ends; −1 without any."""
        self._dirty: deque[MappedUnits] = deque()
        self._mappings = mappings or Mappings()
        self._root = self._device = -1
        self.unmade_error: OSError | None = None
        """Why some new queues have no files yet, although they were flushed."""

    def load(self, log_end: int = -1) -> None:
        """Find the queues on disk; the caller must recover each. *log_end* is as for the queues.

        Raises:
            CorruptFileError: files of different sizes, or a topic with queues of both kinds.
        """
        self._open_root()
        for kind in self._kinds:
            for topic, queue_id, path in _directories(kind.directory):
                queue = self._make(kind, topic, queue_id, path)
                queue.load(log_end)
                if not queue.has_files:
                    continue
                kind.file_size_bytes = self._common_size(queue, kind.file_size_bytes)
                queues = self._topics.setdefault(topic, {})
                if any(type(other) is not kind.of for other in queues.values()):
                    raise CorruptFileError(
                        queue.directory,
                        f"topic {topic} has both batch and plain consume queues under "
                        f"{self._layout.consume_queues}: move those away that do not match its "
                        "type",
                    )
                queues[queue_id] = queue

    def _open_root(self) -> None:
        # Before anything is written: a failed write is reported only to older descriptors.
        with contextlib.suppress(OSError):
            self._root = os.open(self._layout.root, os.O_RDONLY | os.O_CLOEXEC)
            self._device = os.fstat(self._root).st_dev
            self._close_root = weakref.finalize(self, os.close, self._root)

    def list_stopped(self, store_time_ms: int) -> StoppedQueues:
        """Return the state of all queues with files, after the last append."""
        short = dict(self._asleep)
        found = StoppedQueues(store_time_ms, self.file_sizes_bytes, short, {}, {})
        for queue in self.list_awake():
            if not queue.has_files:
                continue
            state = queue.short_state()
            if state is not None:
                found.short.setdefault(queue.topic, {})[str(queue.queue_id)] = state
            else:
                others = found.batch if queue.IS_BATCH else found.others
                others.setdefault(queue.topic, []).append(queue.queue_id)
        return found

    def restore(self, stopped: StoppedQueues, log_end: int) -> None:
        """Take over the queues as ``list_stopped`` returned them, if nothing has changed since.

        *log_end* is as for ``load``. The caller must recover those that are not ``is_restored``.

        Raises:
            CorruptFileError: a file of the others does not have its size; use ``load`` instead.
        """
        self._open_root()
        plain, batch = self._kinds
        plain.file_size_bytes, batch.file_size_bytes = stopped.file_sizes_bytes
        self._asleep = dict(stopped.short)
        self._asleep_offsets = {
            (topic, int(name)): state[1]
            for topic, states in self._asleep.items()
            for name, state in states.items()
        }
        ends = (state[2] for states in stopped.short.values() for state in states.values())
        self.asleep_end = max(ends, default=-1)
        for kind, others in ((plain, stopped.others), (batch, stopped.batch)):
            for topic, queue_ids in others.items():
                for queue_id in queue_ids:
                    queue = self._new(kind, topic, queue_id)
                    queue.load(log_end)
                    if queue.file_size_bytes != kind.file_size_bytes or not queue.has_files:
                        raise CorruptFileError(queue.directory, "its files have changed")
                    self._wake(topic)
                    self._topics.setdefault(topic, {})[queue_id] = queue

    def _wake(self, topic: str) -> dict[int, UnitQueue]:
        """Make the queues of *topic* that are asleep, and return them."""
        states = self._asleep.pop(topic, None)
        if states is None:
            return {}
        plain = self._kinds[0]
        parent = f"{plain.directory}/{topic}"
        queues = self._topics[topic] = {}
        for name, state in states.items():
            queue_id = int(name)
            queue = self._make(plain, topic, queue_id, f"{parent}/{queue_id}")
            queue.restore(*state)
            queues[queue_id] = queue
            del self._asleep_offsets[topic, queue_id]
        return queues

    def _queues_in(self, topic: str) -> dict[int, UnitQueue]:
        queues = self._topics.get(topic)
        return self._wake(topic) if queues is None else queues

    @property
    def file_sizes_bytes(self) -> tuple[int, int]:
        """The size of the files of plain queues, and of those of type BatchCQ."""
        plain, batch = (kind.file_size_bytes for kind in self._kinds)
        return plain, batch

    def _common_size(self, queue: UnitQueue, size_bytes: int) -> int:
        """Return the file size of *queue*; the first queue with files sets it for all."""
        if queue.file_size_bytes == size_bytes:
            return size_bytes
        for other in self:
            if type(other) is type(queue):
                raise CorruptFileError(
                    queue.directory,
                    f"its files have {queue.file_size_bytes} bytes, those in {other.directory} "
                    f"{other.file_size_bytes}: restore the directory, or move it away to have it "
                    "rebuilt",
                )
        log.warning(
            "queue files differ from the configured size; keeping their size",
            directory=str(queue.directory),
            size_bytes=queue.file_size_bytes,
            configured_size_bytes=size_bytes,
        )
        return queue.file_size_bytes

    def __iter__(self) -> Iterator[UnitQueue]:
        """Iterate over all queues, and wake them; topics may be deleted meanwhile."""
        asleep = tuple(self._asleep)
        yield from self.list_awake()
        for topic in asleep:
            yield from tuple(self._queues_in(topic).values())

    def list_awake(self) -> Iterator[UnitQueue]:
        """Iterate over the queues that are not asleep; topics may be deleted meanwhile."""
        for queues in tuple(self._topics.values()):
            yield from tuple(queues.values())

    def list_reaching_beyond(self, commit_log_offset: int) -> Iterator[UnitQueue]:
        """Iterate over the queues with a record that ends after *commit_log_offset*."""
        queues = self if self.asleep_end > commit_log_offset else self.list_awake()
        return (queue for queue in queues if queue.commit_log_end > commit_log_offset)

    def list_asleep(self) -> Mapping[tuple[str, int], int]:
        """Return the next offset of each queue that is asleep, by topic and queue id."""
        return self._asleep_offsets

    @property
    def commit_log_end(self) -> int:
        """Where the last record of all queues ends, or ended before it was cut; −1 without any."""
        return max([self.asleep_end, *(queue.commit_log_end for queue in self.list_awake())])

    @property
    def count(self) -> int:
        """The number of queues."""
        return sum(map(len, self._topics.values())) + sum(map(len, self._asleep.values()))

    def topics(self) -> list[str]:
        """Return the topics that have queues."""
        return [*self._topics, *self._asleep]

    def queues_of(self, topic: str) -> dict[int, UnitQueue]:
        """Return a copy of the queues of one topic, by their ids."""
        return dict(self._queues_in(topic))

    def get(self, topic: str, queue_id: int) -> UnitQueue | None:
        """Return the queue, or None; never make one."""
        queues = self._topics.get(topic)
        return (self._wake(topic) if queues is None else queues).get(queue_id)

    def get_or_create(self, topic: str, queue_id: int, *, batch: bool = False) -> UnitQueue:
        """Return the queue; a new one has no files before its first message.

        Raises:
            StoreError: it exists and is of the other kind.
        """
        queue = self.get(topic, queue_id)
        if queue is None:
            queue = self._new(self._kinds[batch], topic, queue_id)
            self._topics.setdefault(topic, {})[queue_id] = queue
        if queue.IS_BATCH is not batch:
            raise StoreError(
                f"queue {queue_id} of topic {topic} is in {queue.directory}: the topic's type "
                "(queue.type) cannot change while it has messages; delete the topic first"
            )
        return queue

    def _new(self, kind: "_QueueKind", topic: str, queue_id: int) -> UnitQueue:
        directory = queue_directory(kind.directory, topic, queue_id)
        return self._make(kind, topic, queue_id, str(directory))

    def _make(self, kind: "_QueueKind", topic: str, queue_id: int, directory: str) -> UnitQueue:
        dirty, mappings = self._dirty, self._mappings
        return kind.of(directory, topic, queue_id, kind.file_size_bytes, dirty, mappings)

    def delete_topic(self, topic: str) -> DeletedQueues:
        """Forget the queues of a topic, and return their files; unknown topics are fine.

        The topic may be made again, whether or not the files are deleted.

        Raises:
            OSError: the files are still in place.
        """
        self._wake(topic)
        queues = self._topics.pop(topic, {}).values()
        files = [file for queue in queues for file in queue.detach()]
        # A thread that makes files ahead skips those that are marked, so only one is waited for.
        for file in files:
            file.wait_for_writer()
        one_of_each_kind = {queue.IS_BATCH: queue for queue in queues}.values()
        moved = [
            move_queues_aside(queue.directory.parent, self._layout.deleted_queues)
            for queue in one_of_each_kind
        ]
        return DeletedQueues(files, filter(None, moved))

    def flush_steps(self, thorough: bool) -> Iterator[None]:
        """Flush the queues that are dirty now, one between each step. For the flush thread.

        After a *thorough* flush, all that was appended before it began is durable, unless a file of
        a new queue could not be made (``unmade_error``): its units stay in memory. Otherwise queues
        with less than LEAST_PAGES to flush wait.

        Raises:
            TooManyOpenFilesError: no descriptor is free; unflushed queues stay dirty.
            StoreFailedError: the content on disk is unknown.
        """
        unmade_error = None
        for _ in range(len(self._dirty)):
            try:
                self._dirty.popleft().flush(0 if thorough else LEAST_PAGES)
            except TooManyOpenFilesError:
                raise
            except OSError as error:
                if unmade_error is None and self.unmade_error is None:
                    log.error("a queue's file cannot be made; trying again", reason=str(error))
                unmade_error = error
            yield
        self.unmade_error = unmade_error

    def flush_all(self) -> None:
        """Make all units durable while nobody appends. Blocks.

        Many queues are made durable by one sync of the file system: one for each file takes longer
        than Docker waits for a broker to stop. If the file system does not report which file could
        not be written, each file does.

        Raises: as ``flush_steps``.
        """
        for queue in tuple(self._dirty):
            queue.write_draft()
        if len(self._dirty) >= SYNCED_TOGETHER_MIN and self._sync_file_system():
            for _ in range(len(self._dirty)):
                queue = self._dirty.popleft()
                if not queue.note_synced(self._device):
                    self._dirty.append(queue)
        for _ in self.flush_steps(thorough=True):
            pass

    def _sync_file_system(self) -> bool:
        try:
            return self._root >= 0 and disk.sync_file_system(self._root)
        except OSError as error:
            log.warning("the file system reports a failed write", reason=str(error))
            return False

    @property
    def dirty_count(self) -> int:
        """The number of queues with something to flush."""
        return len(self._dirty)

    def release_idle(self) -> Iterator[int]:
        """Unmap the queues without a new message since the last call, in steps; yield how many.

        Call it once a minute. For the thread that appends.
        """
        queues = self.list_awake()
        while piece := list(islice(queues, QUEUES_PER_PIECE)):
            yield sum(queue.release_if_idle() for queue in piece)

    def close(self) -> None:
        """Drop all mappings. Flushes nothing."""
        for queue in self.list_awake():
            queue.close()
        if self._root >= 0:
            self._close_root()
            self._root = -1


def _directories(parent: Path) -> Iterable[tuple[str, int, str]]:
    """Yield topic, queue id and path of each queue's directory; ignore other names."""
    for topic in _subdirectories(parent):
        for queue in _subdirectories(topic.path):
            if queue.name.isdecimal():
                queue_id = int(queue.name)
                yield topic.name, queue_id, f"{topic.path}/{queue_id}"
            else:
                log.warning("ignoring a path that is not a queue", path=queue.path)


def _subdirectories(directory: Path | str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = sorted(os.scandir(directory), key=attrgetter("name"))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir():
            yield entry
        else:
            log.warning("ignoring a path that is not a queue", path=entry.path)
