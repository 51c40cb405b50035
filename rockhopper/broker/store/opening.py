"""Open a store directory: the order of the steps, and the parts of the open store.

    1  lock          before anything is read: recovery changes files
    2  abort         if it is absent, the last stop was clean; it is made again, durably
    3  load          commit log files, consume queues, index, checkpoint
    4  recover       find the log's end; dispatch again what queues and index lack
    5  commit log    ready for writing

Closing goes in the opposite order; ``abort`` is removed last, and only if nothing was lost.
"""

import contextlib
import mmap
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import structlog

from rockhopper.broker.settings.store_config import FlushDiskType, StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checkpoint as checkpoints
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.files.lock_file import (
    StoreLock,
    StoreWatch,
    mark_in_use,
    mark_stopped,
    was_left_in_use,
)
from rockhopper.broker.store.files.mapped_file import MAPPED_FILES_MAX, MappedFile, Mappings
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.index.index import MessageIndex, check_geometry, move_marked_aside
from rockhopper.broker.store.log.commit_log import CommitLog, NextFile, ReadAhead
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.consume_queue_ext import ConsumeQueueExt
from rockhopper.broker.store.queues.deleted_topics import (
    DeletedQueues,
    DeletedTopics,
    remove_queues_aside,
)
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable, StoppedQueues
from rockhopper.broker.store.recovering import inventory, log_identity, resizing
from rockhopper.broker.store.recovering.inventory import (
    Inventory,
    QueueKey,
    check_table_sizes,
    save_table_sizes,
)
from rockhopper.broker.store.recovering.log_walk import LogWalk, QueueWitnesses, cut_tail
from rockhopper.broker.store.recovering.opening_checks import (
    check_file_system,
    check_log_directory,
    check_log_exists,
    check_no_rocksdb,
    check_store_exists,
    check_store_finished,
    save_log_directory,
)
from rockhopper.broker.store.recovering.queue_repair import QueueRules
from rockhopper.broker.store.recovering.recovery import RecoveryReport, recover
from rockhopper.broker.store.recovering.recovery_start import LoadedStore
from rockhopper.broker.store.retention import ReservedTime, RetentionService, RetentionSettings
from rockhopper.protocol.store.expected import DelayOf
from rockhopper.protocol.store.queue_layout import IndexGeometry
from rockhopper.protocol.store.store_paths import DELETED_TOPICS_FILE, PURGED_TOPICS_FILE
from rockhopper.protocol.store.walking import read_record

log = structlog.get_logger("broker.store")


class Extent(NamedTuple):
    """How much of a store is opened."""

    mapped_files_max: int = MAPPED_FILES_MAX
    """The maximum of mapped files of log and queues, each with a descriptor."""
    cut_at: int | None = None
    """End the log at this offset; the bytes after it are moved to the quarantine."""
    is_in_the_making: bool = False
    """A tool opens the store that it is making: no broker may, and the tool reports the findings.
    """


WHOLE = Extent()
NOTHING_NOTED = Inventory(0, None, {})


class FormerEnds(Protocol):
    """Where the queues of deleted topics ended."""

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a later queue of that name; 0 if there was none before."""


class OpenedStore:
    """The parts of one open store directory."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        store_host: bytes,
        delay_ms: DelayOf,
        batch_topic: Callable[[str], bool],
        known_offsets: Callable[[], Mapping[QueueKey, int]] = dict,
        extent: Extent = WHOLE,
    ) -> None:
        """Open it. Raises StoreError, OSError; then nothing is left open."""
        self.layout = StoreLayout.from_config(config)
        self.delay_ms = delay_ms
        self.topic_ends: FormerEnds | None = None
        """The ends of deleted topics, if the broker keeps them."""
        # Checked before the directory is made: RocketMQ does not have it.
        is_ours = self.layout.own.is_dir()
        self.reserved_time = ReservedTime(
            lambda: config.live.file_reserved_hours * 3_600_000, now_ms
        )
        self.mappings = Mappings(extent.mapped_files_max)
        self._exts: dict[tuple[str, int], ConsumeQueueExt] = {}
        self._read_ahead = ReadAhead()
        if not extent.is_in_the_making:
            check_store_exists(self.layout, must_exist=config.must_exist)
        disk.make_directories_durably(config.root)
        check_file_system(config.root)
        with contextlib.ExitStack() as undo:
            self._lock = StoreLock(config.root, self.layout.lock, self.layout.abort)
            undo.callback(self._lock.release)
            if not extent.is_in_the_making:
                check_store_finished(self.layout)
                check_no_rocksdb(self.layout)
            last_exit_clean = not was_left_in_use(self.layout.abort)
            mark_in_use(self.layout.abort)
            with contextlib.ExitStack() as nothing_changed:
                # A wrong setting must not make the next start assume a crash.
                if last_exit_clean:
                    nothing_changed.callback(mark_stopped, self.layout.abort)
                is_cut = extent.cut_at is not None
                noted = self._load(config, last_exit_clean, now_ms, is_cut=is_cut)
                nothing_changed.pop_all()
            if extent.cut_at is not None:
                last_exit_clean = False
                noted = self._cut(extent.cut_at, noted)
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="store-files")
            self.report = self._recover(
                config,
                noted,
                QueueRules(
                    batch_topic,
                    self.deleted_topics.hides,
                    delay_ms,
                    self.has_gone,
                    known_offsets,
                ),
                last_exit_clean=last_exit_clean,
                is_ours=is_ours,
            )
            if not extent.is_in_the_making:
                self.report.log(last_exit_clean=last_exit_clean)
            if not self._files.files:
                # If units exist but no log file, the next start concludes that the log was lost.
                self._files.append_file().sync(0)
            log_identity.save_identity(self.layout, self._files)
            log_end = self.report.log_end
            self._read_ahead.passed(self._files.files, log_end)
            next_file = NextFile(self._files, self._executor)
            self.retention = self._make_retention(config, next_file, now_ms, wall_ms)
            self.commit_log = CommitLog(
                self._files, self._read_ahead, log_end, store_host, next_file, self.retention
            )
            self.commit_log.store_time_ms = self.report.last_store_time_ms
            self.watch = StoreWatch(self.layout, self._files, self._lock.is_in_place)
            undo.pop_all()

    def _load(
        self,
        config: StoreConfig,
        last_exit_clean: bool,
        now_ms: Callable[[], int],
        *,
        is_cut: bool,
    ) -> Inventory | None:
        """Load all files; return the inventory that the last run left."""
        layout = self.layout
        check_log_directory(layout)
        self.checkpoint = checkpoints.load_newest(layout)
        noted = inventory.load(layout)
        if last_exit_clean:
            check_table_sizes(layout)
        self._files = MappedFileQueue(
            layout.commit_log,
            config.commit_log_file_size_bytes,
            map_file=self._map_log_file,
        )
        known = noted or NOTHING_NOTED
        resizing.resize_log_files(
            layout,
            known.file_sizes[0],
            config.commit_log_file_size_bytes,
            max(known.log_end, self.checkpoint.flushed_offset),
        )
        self._files.load()
        remove_queues_aside(layout.deleted_queues)
        stopped = None
        if last_exit_clean and not is_cut:
            stopped = inventory.load_queues(layout, self._lock.found_state, self._files)
        self._stopped_time_ms = 0 if stopped is None else stopped.store_time_ms
        self.queues = self._load_queues(config, known.file_sizes, stopped)
        check_log_exists(layout, self._files, self.queues, noted, self.checkpoint)
        log_identity.check_identity(layout, self._files)
        disk.make_directories_durably(layout.commit_log)
        self._lock.lock_commit_log(layout.commit_log)
        save_log_directory(layout)
        self.index: MessageIndex | None = None
        if config.index_enabled:
            shape = IndexGeometry(config.index_slot_count, config.index_entry_count_max)
            check_geometry(layout, shape)
            move_marked_aside(layout)
            self.index = MessageIndex(layout.index, *shape, now_ms=now_ms)
            self.index.load(last_exit_clean)
        self.deleted_topics = DeletedTopics(layout.own / DELETED_TOPICS_FILE, layout.quarantine)
        self.purged_topics = DeletedTopics(layout.own / PURGED_TOPICS_FILE, layout.quarantine)
        return noted

    def _cut(self, end: int, noted: Inventory | None) -> Inventory:
        """End the log at *end*, and correct every file that claims a later end.

        Returns what is left of the inventory *noted*.

        Recovery then works as after a power cut that left the log up to *end*: it drops the units
        and index entries that point after the end.
        """
        cut = cut_tail(self.layout, self._files, end)
        if cut is not None:
            log.warning(
                "the commit log was cut", end=end, cut_bytes=cut.size_bytes, kept=cut.kept_as
            )
        last = self._files.files[-1]
        first = read_record(last.mapping, 0, last.base_offset)
        claimed_ms = first.store_time_ms if first is not None and first.offset < end else 0
        self.checkpoint = self.checkpoint._replace(
            flushed_offset=min(self.checkpoint.flushed_offset, end),
            commit_log_ms=min(self.checkpoint.commit_log_ms, claimed_ms),
            consume_queue_ms=min(self.checkpoint.consume_queue_ms, claimed_ms),
            index_ms=min(self.checkpoint.index_ms, claimed_ms),
        )
        checkpoints.save_at_start(layout=self.layout, checkpoint=self.checkpoint)
        if self.index is not None:
            self.index.discard_from(end)
        known = noted or NOTHING_NOTED
        return known._replace(
            log_end=min(known.log_end, end),
            index_end=None if self.index is None else self.index.end_commit_log_offset,
            queue_ends={},
            is_sync=False,
        )

    def _map_log_file(self, file: MappedFile) -> mmap.mmap:
        mapping = self.mappings.map(file, self._files)
        self._read_ahead.advise(mapping, file.base_offset)
        return mapping

    def set_read_ahead(self, *, enabled: bool) -> None:
        """Allow or forbid read-ahead in the commit log, also for files that are mapped later."""
        self._read_ahead.turn(self._files.files, enabled=enabled)

    def _load_queues(
        self,
        config: StoreConfig,
        noted_sizes: tuple[int, int, int],
        stopped: StoppedQueues | None,
    ) -> ConsumeQueueTable:
        layout = self.layout
        plain_bytes = config.consume_queue_file_size_bytes
        batch_bytes = config.batch_consume_queue_file_size_bytes
        resized = resizing.list_resized_before(layout)
        queues = ConsumeQueueTable(layout, plain_bytes, batch_bytes, self.mappings)
        if (
            stopped is not None
            and not resized
            and stopped.file_sizes_bytes == queues.file_sizes_bytes
        ):
            with contextlib.suppress(CorruptFileError):
                queues.restore(stopped, self._files.next_base_offset)
                return queues
            queues = ConsumeQueueTable(layout, plain_bytes, batch_bytes, self.mappings)
        self._stopped_time_ms = 0
        try:
            queues.load(self._files.next_base_offset)
        except CorruptFileError:
            plain, batch = ConsumeQueue.UNIT_SIZE_BYTES, BatchConsumeQueue.UNIT_SIZE_BYTES
            resized = resizing.resize_queue_files(
                layout,
                [
                    (layout.consume_queues, plain, noted_sizes[1], plain_bytes),
                    (layout.batch_consume_queues, batch, noted_sizes[2], batch_bytes),
                ],
            )
            if not resized:
                raise
            queues = ConsumeQueueTable(layout, plain_bytes, batch_bytes, self.mappings)
            queues.load(self._files.next_base_offset)
        for queue in queues if resized else ():
            queue.was_resized = queue.directory in resized
        return queues

    def _recover(
        self,
        config: StoreConfig,
        noted: Inventory | None,
        rules: QueueRules,
        *,
        last_exit_clean: bool,
        is_ours: bool,
    ) -> RecoveryReport:
        report = recover(
            LoadedStore(
                self.layout,
                self._files,
                self.queues,
                self.index,
                self.checkpoint,
                noted,
                last_exit_clean,
                self._stopped_time_ms,
            ),
            rules,
            is_ours=is_ours,
            is_sync=config.flush_disk_type is FlushDiskType.SYNC,
            check_crc=config.check_crc_on_recover,
        )
        resizing.forget_resized(self.layout)
        self.deleted_topics.forget_before(self._files.min_offset)
        self.purged_topics.forget_before(self._files.min_offset)
        for topic, end in self.purged_topics:
            self._begin_behind(topic, end)
        self.checkpoint = self.checkpoint._replace(
            commit_log_ms=report.last_store_time_ms,
            consume_queue_ms=report.last_store_time_ms,
            index_ms=report.last_store_time_ms,
            flushed_offset=report.log_end,
        )
        checkpoints.save_at_start(layout=self.layout, checkpoint=self.checkpoint)
        return report

    def former_end(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue whose deleted topic had messages in it, else 0."""
        return 0 if self.topic_ends is None else self.topic_ends.end_of(topic, queue_id)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next message of a queue gets."""
        queue = self.queues.get(topic, queue_id)
        known = max(
            self.report.next_queue_offsets.get((topic, queue_id), 0),
            self.former_end(topic, queue_id),
        )
        return known if queue is None else max(queue.max_offset, known)

    def properties_from(self, offset: int) -> Iterator[bytes]:
        """Yield the stored properties of each record from a commit log offset on."""
        end = self.commit_log.written_offset
        witnesses = QueueWitnesses(self.queues, self._files)
        walk = LogWalk(self._files.files, offset, quiet_from=end, witnesses=witnesses)
        for record in walk.records():
            if record.end_offset <= end:
                yield record.properties

    def resolve_ext(self, topic: str, queue_id: int, address: int) -> int | None:
        """Return the tags code at an address from a consume queue entry; None if unreadable."""
        key = (topic, queue_id)
        ext = self._exts.get(key)
        if ext is None:
            ext = ConsumeQueueExt(self.layout.consume_queue_ext(topic, queue_id))
            self._exts[key] = ext
        unit = ext.get(address)
        return None if unit is None else unit.tags_code

    def _make_retention(
        self,
        config: StoreConfig,
        next_file: NextFile,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> RetentionService:
        retention = RetentionService(
            self.layout,
            self._files,
            self.queues,
            self.index,
            next_file,
            lambda: _retention_settings(config, self.reserved_time()),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )
        retention.trusted_ms.written_ms = self.checkpoint.commit_log_ms
        return retention

    def delete_topics(self, topics: Collection[str], end: int) -> DeletedQueues:
        """Forget the queues of topics whose records end at or before *end*; return their files.

        Blocks.
        """
        self.deleted_topics.add_all(topics, end)
        deleted = DeletedQueues()
        for topic in topics:
            deleted += self.queues.delete_topic(topic)
        for key in [key for key in self.report.next_queue_offsets if key[0] in topics]:
            del self.report.next_queue_offsets[key]
        return deleted

    def purge_topics(self, topics: Collection[str], end: int) -> int:
        """Make the queues of topics begin after *end*; return how many messages that removes.

        Blocks.
        """
        self.purged_topics.add_all(topics, end)
        return sum(self._begin_behind(topic, end) for topic in topics)

    def has_gone(self, topic: str) -> bool:
        """Return whether the log may have records that were deleted or purged with *topic*."""
        return self.is_gone(topic, 0)

    def is_gone(self, topic: str, commit_log_offset: int) -> bool:
        """Return whether a record was deleted or purged with *topic*, though the log has it."""
        return self.deleted_topics.hides(topic, commit_log_offset) or self.purged_topics.hides(
            topic, commit_log_offset
        )

    def _begin_behind(self, topic: str, end: int) -> int:
        count = 0
        for queue in self.queues.queues_of(topic).values():
            before = queue.min_offset
            queue.correct_min_offset(end)
            count += queue.min_offset - before
        return count

    def close(self, *, clean: bool) -> None:
        """Close everything; *clean* means that all of it is dispatched and on disk."""
        end = self.commit_log.written_offset
        if clean:
            log_identity.save_identity(self.layout, self._files)
        self.commit_log.close()
        self._executor.shutdown()
        if clean:
            inventory.save_at_stop(
                self.layout, end, self.queues, self.index, self.deleted_topics.hides
            )
        self.queues.close()
        if self.index is not None:
            self.index.close()
        for ext in self._exts.values():
            ext.close()
        if clean:
            # Not the clock of the last pass, which may be later than any message.
            store_time_ms = max(self.checkpoint.commit_log_ms, self.checkpoint.consume_queue_ms)
            if self.checkpoint.flushed_offset == end:
                inventory.save_queues(
                    self.layout, self._lock.state, self._files, self.queues, store_time_ms
                )
            checkpoints.save_at_stop(self.layout, self.checkpoint)
            save_table_sizes(self.layout)
            mark_stopped(self.layout.abort)
        self._lock.release()


def _retention_settings(config: StoreConfig, reserved_ms: int) -> RetentionSettings:
    return RetentionSettings(
        reserved_ms=reserved_ms,
        delete_when=config.live.delete_when,
        interval_ms=config.live.clean_interval_ms,
        delete_interval_ms=config.live.delete_files_interval_ms,
        batch_max=config.live.delete_files_batch_max,
        used_percent_max=config.live.disk_used_percent_max,
        clean_forcibly_percent=config.live.disk_clean_forcibly_percent,
        warning_percent=config.live.disk_warning_percent,
        clean_forcibly=config.live.clean_file_forcibly,
    )
