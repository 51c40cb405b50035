"""The settings of the store (sizes, flushing, reading, retention): the defaults and the costs."""

# ruff: noqa: RUF009  (setting() makes fields; it is no shared mutable default)

from dataclasses import dataclass, field, replace
from pathlib import Path

from rockhopper.broker.settings.live_settings import (
    FlushDiskType as FlushDiskType,
)
from rockhopper.broker.settings.live_settings import (
    LiveStoreSettings,
    check_hours,
)
from rockhopper.broker.settings.setting_fields import SettingError, check_fields, setting
from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY_COUNT_MAX,
    INDEX_SLOT_COUNT,
    QUEUE_FILE_ENTRY_COUNT,
)

ROCKETMQ_QUEUE_UNIT_BYTES = 20
ROCKETMQ_BATCH_QUEUE_UNIT_BYTES = 46


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """The store directory: sizes, flushing, reading, retention."""

    live: LiveStoreSettings = field(default_factory=LiveStoreSettings)

    root: Path = setting("storePathRootDir", Path("data"))
    """The store directory. One broker at a time; created when missing."""

    must_exist: bool = setting("storeMustExist", False)
    """Ours. Whether a directory without a store is refused: its disk may not be mounted. ``false``:
    a new store is made there, with a warning. For a first start set it to ``false``."""

    group: str = setting("storeGroup", "")
    """Ours. A group of this host whose members may read the store's files where users are on
    (authenticationEnabled): Spark, the store tools. Without it the broker's own user alone may.

    Cost: safety: its members read all messages, whatever the rules say.
    """

    commit_log_directory: Path | None = setting("storePathCommitLog", None)
    """Where the commit log is when not in ``<storePathRootDir>/commitlog``: on a faster disk."""

    commit_log_file_size_bytes: int = setting(
        "mappedFileSizeCommitLog", 1 << 30, least=4096, most=(1 << 31) - 1
    )
    """One commit log file, reserved on disk when it is created. Small files roll often; the size
    in a store that exists is taken from its files.

    Cost: its size on the disk at once, and twice that when a file is half full; messages are
    deleted by whole files.
    """

    consume_queue_file_size_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        QUEUE_FILE_ENTRY_COUNT * ROCKETMQ_QUEUE_UNIT_BYTES,
        least=20,
        most=(1 << 31) - 20,
    )
    """One consume queue file, 20 bytes a message, rounded up to whole entries.

    Cost: every queue that has a message has a file, with holes: 21 KiB are on the disk at first,
    whatever the size. Smaller ones roll more often.
    """

    batch_consume_queue_file_size_bytes: int = setting(
        "mapperFileSizeBatchConsumeQueue",
        QUEUE_FILE_ENTRY_COUNT * ROCKETMQ_BATCH_QUEUE_UNIT_BYTES,
        least=46,
        most=(1 << 31) - 46,
    )
    """The same for topics of type BatchCQ, 46 bytes a batch. The key is RocketMQ's spelling.

    Cost: as of mappedFileSizeConsumeQueue.
    """

    index_slot_count: int = setting("maxHashSlotNum", INDEX_SLOT_COUNT, least=1, most=1 << 28)
    """Hash slots of an index file, 4 bytes each. A store keeps the geometry it was made with:
    another value is refused.

    Cost: 4 bytes of disk for each, at once; few of them make look-ups slow.
    """

    index_entry_count_max: int = setting(
        "maxIndexNum", INDEX_ENTRY_COUNT_MAX, least=2, most=1 << 26
    )
    """Keys in one index file, 20 bytes each; the store's geometry, as above.

    Cost: 20 bytes of disk for each key that is there.
    """

    index_enabled: bool = setting("messageIndexEnable", True)
    """Whether messages can be found by key.

    Cost: about a tenth of a send, and 20 bytes of disk for each key.
    """

    flush_interval_ms: int = setting("flushIntervalCommitLog", 500, least=1, most=3_600_000)
    """How often the commit log goes to disk under ASYNC_FLUSH: what a power cut may cost.

    Cost: an fsync each time that something was written.
    """

    consume_queue_flush_interval_ms: int = setting(
        "flushIntervalConsumeQueue", 1000, least=10, most=3_600_000
    )
    """How often consume queues are looked at for flushing.

    Cost: a long one has more to be replayed after a crash.
    """

    consume_queue_flush_thorough_interval_ms: int = setting(
        "flushConsumeQueueThoroughInterval", 60_000, least=100, most=3_600_000
    )
    """Flush every dirty queue this often: bounds what a crash must replay.

    Cost: an fsync for each queue that was written to.
    """

    sync_flush_timeout_ms: int = setting("syncFlushTimeout", 5000, least=1, most=3_600_000)
    """After this long under SYNC_FLUSH the producer is told FLUSH_DISK_TIMEOUT (stored,
    durability not known).

    Cost: how long a producer waits for a disk that hangs.
    """

    flush_waiting_bytes_max: int = setting(
        "flushWaitingBytesMax", 64 << 20, least=1 << 20, most=1 << 40
    )
    """Ours. Bytes appended and not yet flushed under SYNC_FLUSH before sends get SYSTEM_BUSY.

    Cost: a large one has more sends wait for a slow disk, and each for longer; a small one refuses
    them.
    """

    check_crc_on_recover: bool = setting("checkCRCOnRecover", True)
    """Compare body checksums when the log is scanned after a crash.

    Cost: a start after a crash takes longer, by what the CRC of the scanned part takes.
    """

    transfer_bytes_in_memory_max: int = setting(
        "maxTransferBytesOnMessageInMemory", 256 << 10, least=1, most=16 << 20
    )
    """Bytes of messages in one pull answer. Old clients decode into a buffer of 1 MB.

    Cost: memory for each reader that is slow to take its answer.
    """

    transfer_count_in_memory_max: int = setting(
        "maxTransferCountOnMessageInMemory", 32, least=1, most=10_000
    )
    """Messages in one pull answer, whatever the client asks for.

    Cost: a large one makes larger answers, a small one more requests.
    """

    transfer_bytes_on_disk_max: int = setting(
        "maxTransferBytesOnMessageInDisk", 64 << 10, least=1, most=16 << 20
    )
    """The same for messages too old to be in the page cache.

    Cost: a large one has readers of old messages keep the disk from others.
    """

    transfer_count_on_disk_max: int = setting(
        "maxTransferCountOnMessageInDisk", 8, least=1, most=10_000
    )
    """The same for messages too old to be in the page cache.

    Cost: as of maxTransferBytesOnMessageInDisk.
    """

    in_memory_ratio_max: int = setting("accessMessageInMemoryMaxRatio", 40, least=1, most=100)
    """Percent of physical memory behind the log's end that counts as in the page cache.

    Cost: none; too large a value has old messages read in answers too large for the disk.
    """

    filter_message_size_max: int = setting("maxFilterMessageSize", 16_000, least=1, most=1 << 24)
    """Consume queue entries, in multiples of 20 bytes, that one filtered pull looks at.

    Cost: the loop's time for each pull with a filter that little passes.
    """

    scrub_bytes_per_second: int = setting("scrubBytesPerSecond", 2 << 20, least=0, most=1 << 40)
    """Ours. How much of the commit log a second the scrub reads to find what has rotted; a record
    counts as 1 KiB at least. 0 turns it off.

    Cost: little of a core, and that much reading of the disk.
    """

    scrub_off_peak_bytes_per_second: int = setting(
        "scrubOffPeakBytesPerSecond", 8 << 20, least=0, most=1 << 40
    )
    """Ours. The same in the hours of scrubOffPeakWhen.

    Cost: as of scrubBytesPerSecond, in these hours.
    """

    scrub_off_peak_when: str = setting("scrubOffPeakWhen", "02;03")
    """Ours. Hours of the day, ``;`` between, in which few are about; empty for none."""

    scrub_interval_ms: int = setting("scrubInterval", 3_600_000, least=10, most=1 << 40)
    """Ours. How long the scrub rests between two passes over the log.

    Cost: a long one finds later what has rotted.
    """

    light_queues_enabled: bool = setting("enableLmq", False)
    """Whether there are light queues (``%LMQ%…``): they need no topic, and a message may be in
    many of them.

    Cost: each that has a message takes some KiB of disk and a directory.
    """

    multi_dispatch_enabled: bool = setting("enableMultiDispatch", False)
    """Whether messages go to the light queues that their property INNER_MULTI_DISPATCH names.

    Cost: 20 bytes and a write for each queue that a message names.
    """

    light_queue_quota: bool = setting("enableLmqQuota", False)
    """Whether maxLmqConsumeQueueNum counts."""

    light_queue_count_max: int = setting("maxLmqConsumeQueueNum", 20_000, least=1, most=1 << 31)
    """Most light queues; a message that would make another is refused.

    Cost: some KiB of disk for each that has a message.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        if self.commit_log_directory is not None and "," in str(self.commit_log_directory):
            raise SettingError(
                "storePathCommitLog", self.commit_log_directory, "one directory is allowed, no list"
            )
        check_hours("scrubOffPeakWhen", self.scrub_off_peak_when)

    @property
    def flush_disk_type(self) -> FlushDiskType:
        """When a producer gets its answer, now."""
        return self.live.flush_disk_type

    def in_whole_entries(self) -> "StoreConfig":
        """The same, with consume queue files that end where an entry does."""
        return replace(
            self,
            consume_queue_file_size_bytes=_round_up(
                self.consume_queue_file_size_bytes, ROCKETMQ_QUEUE_UNIT_BYTES
            ),
            batch_consume_queue_file_size_bytes=_round_up(
                self.batch_consume_queue_file_size_bytes, ROCKETMQ_BATCH_QUEUE_UNIT_BYTES
            ),
        )


def _round_up(size_bytes: int, unit_bytes: int) -> int:
    return -(-size_bytes // unit_bytes) * unit_bytes
