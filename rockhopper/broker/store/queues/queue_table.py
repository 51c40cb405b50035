"""ConsumeQueueTable: all consume queues of a store, by topic and queue id.

A store may have tens of thousands of queues, most of them idle. A queue costs an object and, once
used, a mapping. ``release_idle`` unmaps idle queues, and ``Mappings`` unmaps the least recently
used ones if there are too many. Queues with something to flush add themselves to a list, so clean
queues cost nothing in a flush.

Threads: everything belongs to the thread that appends, except ``flush_steps``.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from pathlib import Path

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout, queue_directory
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.store.files.mapped_file import Mappings
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.deleted_topics import DeletedQueues, move_queues_aside
from rockhopper.broker.store.queues.unit_files import MappedUnits
from rockhopper.broker.store.queues.unit_queue import UnitQueue

log = structlog.get_logger("broker.store")

LEAST_PAGES = 2
QUEUES_PER_PIECE = 5000


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
        self._dirty: deque[MappedUnits] = deque()
        self._mappings = mappings or Mappings()

    def load(self) -> None:
        """Find the queues on disk; the caller must recover each.

        Raises:
            CorruptFileError: files of different sizes, or a topic with queues of both kinds.
        """
        for kind in self._kinds:
            for topic, queue_id in _directories(kind.directory):
                queue = self._new(kind, topic, queue_id)
                queue.load()
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
        """Iterate over all queues; topics may be deleted meanwhile."""
        for queues in tuple(self._topics.values()):
            yield from tuple(queues.values())

    def topics(self) -> list[str]:
        """Return the topics that have queues."""
        return list(self._topics)

    def queues_of(self, topic: str) -> dict[int, UnitQueue]:
        """Return a copy of the queues of one topic, by their ids."""
        return dict(self._topics.get(topic, {}))

    def get(self, topic: str, queue_id: int) -> UnitQueue | None:
        """Return the queue, or None; never make one."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

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
        directory = str(queue_directory(kind.directory, topic, queue_id))
        dirty, mappings = self._dirty, self._mappings
        return kind.of(directory, topic, queue_id, kind.file_size_bytes, dirty, mappings)

    def delete_topic(self, topic: str) -> DeletedQueues:
        """Forget the queues of a topic, and return their files; unknown topics are fine.

        The topic may be made again, whether or not the files are deleted.

        Raises:
            OSError: the files are still in place.
        """
        queues = self._topics.pop(topic, {}).values()
        files = [file for queue in queues for file in queue.detach()]
        moved = [
            move_queues_aside(directory, self._layout.deleted_queues)
            for directory in {queue.directory.parent for queue in queues}
        ]
        return DeletedQueues(files, filter(None, moved))

    def flush_steps(self, thorough: bool) -> Iterator[None]:
        """Flush the queues that are dirty now, one between each step. For the flush thread.

        After a *thorough* flush, all that was appended before it began is durable. Otherwise queues
        with less than LEAST_PAGES to flush wait.

        Raises:
            TooManyOpenFilesError: no descriptor is free; unflushed queues stay dirty.
            StoreFailedError: the content on disk is unknown.
        """
        for _ in range(len(self._dirty)):
            self._dirty.popleft().flush(0 if thorough else LEAST_PAGES)
            yield

    @property
    def dirty_count(self) -> int:
        """The number of queues with something to flush."""
        return len(self._dirty)

    def release_idle(self) -> Iterator[int]:
        """Unmap the queues without a new message since the last call, in steps; yield how many.

        Call it once a minute. For the thread that appends.
        """
        queues = iter(self)
        while piece := list(islice(queues, QUEUES_PER_PIECE)):
            yield sum(queue.release_if_idle() for queue in piece)

    def close(self) -> None:
        """Drop all mappings. Flushes nothing."""
        for queue in self:
            queue.close()


def _directories(parent: Path) -> Iterable[tuple[str, int]]:
    """Yield topic and queue id of each queue's directory; ignore other names."""
    for topic in _subdirectories(parent):
        for queue in _subdirectories(topic.path):
            if queue.name.isdecimal():
                yield topic.name, int(queue.name)
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
