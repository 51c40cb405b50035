"""The settings of the store (sizes, flushing, reading, retention): defaults and costs."""

from dataclasses import field, replace
from pathlib import Path

from rockhopper.broker.settings.live_settings import (
    FlushDiskType as FlushDiskType,
)
from rockhopper.broker.settings.live_settings import (
    LiveStoreSettings,
    check_hours,
)
from rockhopper.broker.settings.setting_fields import (
    SettingError,
    check_fields,
    setting,
    settings_dataclass,
)
from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY_COUNT_MAX,
    INDEX_SLOT_COUNT,
    QUEUE_FILE_ENTRY_COUNT,
)

ROCKETMQ_QUEUE_UNIT_BYTES = 20
ROCKETMQ_BATCH_QUEUE_UNIT_BYTES = 46


@settings_dataclass(frozen=True)
class StoreConfig:
    """The store directory: sizes, flushing, reading, retention."""

    live: LiveStoreSettings = field(default_factory=LiveStoreSettings)

    root: Path = setting("storePathRootDir", Path("data"))
    """The store directory, created when missing. Only one broker at a time may use it."""

    must_exist: bool = setting("storeMustExist", False)
    """Ours. Whether to refuse a directory without a store, because its disk may not be mounted.
    ``false``: a new store is created there, with a warning. Set it to ``false`` for a first
    start."""

    group: str = setting("storeGroup", "")
    """Ours. A group of this host whose members may read the store's files while users are on
    (authenticationEnabled): Spark, the store tools. Without it, only the broker's own user may.

    Cost: safety: members of the group read all messages, whatever the rules say.
    """

    commit_log_directory: Path | None = setting("storePathCommitLog", None)
    """The directory of the commit log, for example on a faster disk. Empty:
    ``<storePathRootDir>/commitlog``."""

    commit_log_file_size_bytes: int = setting(
        "mappedFileSizeCommitLog", 1 << 30, least=4096, most=(1 << 31) - 1
    )
    """Size of one commit log file, reserved on disk when the file is created. Small files roll
    often. An existing store keeps the size of its files.

    Cost: its size on the disk at once, and twice that when a file is half full; messages are
    deleted by whole files.
    """

    consume_queue_file_size_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        QUEUE_FILE_ENTRY_COUNT * ROCKETMQ_QUEUE_UNIT_BYTES,
        least=20,
        most=(1 << 31) - 20,
    )
    """Size of one consume queue file, 20 bytes a message, rounded up to whole entries.

    Cost: every queue with a message has a sparse file, which takes 21 KiB of disk at first,
    whatever its size. Smaller files roll more often.
    """

    batch_consume_queue_file_size_bytes: int = setting(
        "mapperFileSizeBatchConsumeQueue",
        QUEUE_FILE_ENTRY_COUNT * ROCKETMQ_BATCH_QUEUE_UNIT_BYTES,
        least=46,
        most=(1 << 31) - 46,
    )
    """The same for topics of type BatchCQ, 46 bytes a batch. The key is RocketMQ's spelling.

    Cost: see mappedFileSizeConsumeQueue.
    """

    index_slot_count: int = setting("maxHashSlotNum", INDEX_SLOT_COUNT, least=1, most=1 << 28)
    """Hash slots of an index file, 4 bytes each. A store keeps the geometry that it was created
    with: a different value is refused.

    Cost: 4 bytes of disk for each, at once; with few slots, look-ups are slow.
    """

    index_entry_count_max: int = setting(
        "maxIndexNum", INDEX_ENTRY_COUNT_MAX, least=2, most=1 << 26
    )
    """Keys in one index file, 20 bytes each. Part of the store's geometry, as above.

    Cost: 20 bytes of disk for each stored key.
    """

    index_enabled: bool = setting("messageIndexEnable", True)
    """Whether clients can find messages by key.

    Cost: about a tenth of a send, and 20 bytes of disk for each key.
    """

    flush_interval_ms: int = setting("flushIntervalCommitLog", 500, least=1, most=3_600_000)
    """How often the commit log goes to disk under ASYNC_FLUSH. A power cut loses at most this much.

    Cost: an fsync for each interval with a write.
    """

    consume_queue_flush_interval_ms: int = setting(
        "flushIntervalConsumeQueue", 1000, least=10, most=3_600_000
    )
    """How often the broker looks for consume queues to flush.

    Cost: with a long interval, recovery after a crash replays more.
    """

    consume_queue_flush_thorough_interval_ms: int = setting(
        "flushConsumeQueueThoroughInterval", 60_000, least=100, most=3_600_000
    )
    """How often every dirty queue is flushed. This bounds how much recovery after a crash replays.

    Cost: an fsync for each queue that was written to.
    """

    sync_flush_timeout_ms: int = setting("syncFlushTimeout", 5000, least=1, most=3_600_000)
    """Under SYNC_FLUSH, the producer gets FLUSH_DISK_TIMEOUT after this long: the message is
    stored, but may not be on the disk.

    Cost: how long a producer waits for a disk that hangs.
    """

    flush_waiting_bytes_max: int = setting(
        "flushWaitingBytesMax", 64 << 20, least=1 << 20, most=1 << 40
    )
    """Ours. How many appended bytes may wait for a flush under SYNC_FLUSH before sends get
    SYSTEM_BUSY.

    Cost: with a large value, more sends wait for a slow disk, and each for longer; a small value
    refuses them.
    """

    check_crc_on_recover: bool = setting("checkCRCOnRecover", True)
    """Verify body checksums when recovery scans the log after a crash.

    Cost: a start after a crash takes longer, by the CRC of the scanned part.
    """

    transfer_bytes_in_memory_max: int = setting(
        "maxTransferBytesOnMessageInMemory", 256 << 10, least=1, most=16 << 20
    )
    """Bytes of messages in one pull answer. Old clients decode into a buffer of 1 MB.

    Cost: memory for each client that reads its answer slowly.
    """

    transfer_count_in_memory_max: int = setting(
        "maxTransferCountOnMessageInMemory", 32, least=1, most=10_000
    )
    """Messages in one pull answer, whatever the client asks for.

    Cost: a large number makes larger answers, a small one more requests.
    """

    transfer_bytes_on_disk_max: int = setting(
        "maxTransferBytesOnMessageInDisk", 64 << 10, least=1, most=16 << 20
    )
    """The same for messages too old to be in the page cache.

    Cost: with a large value, readers of old messages keep the disk busy for others.
    """

    transfer_count_on_disk_max: int = setting(
        "maxTransferCountOnMessageInDisk", 8, least=1, most=10_000
    )
    """The same for messages too old to be in the page cache.

    Cost: see maxTransferBytesOnMessageInDisk.
    """

    in_memory_ratio_max: int = setting("accessMessageInMemoryMaxRatio", 40, least=1, most=100)
    """Messages this close to the end of the log, in percent of physical memory, count as being in
    the page cache.

    Cost: none. With too large a value, old messages are read in answers that are too large for the
    disk.
    """

    filter_message_size_max: int = setting("maxFilterMessageSize", 16_000, least=1, most=1 << 24)
    """How many consume queue entries one filtered pull examines, in multiples of 20 bytes.

    Cost: event loop time for each pull whose filter matches little.
    """

    scrub_bytes_per_second: int = setting("scrubBytesPerSecond", 2 << 20, least=0, most=1 << 40)
    """Ours. How fast the scrub reads the commit log to find corrupted data; a record counts as at
    least 1 KiB. 0 turns it off.

    Cost: a little of a core, and this much disk reading.
    """

    scrub_off_peak_bytes_per_second: int = setting(
        "scrubOffPeakBytesPerSecond", 8 << 20, least=0, most=1 << 40
    )
    """Ours. The same in the hours of scrubOffPeakWhen.

    Cost: see scrubBytesPerSecond, in these hours.
    """

    scrub_off_peak_when: str = setting("scrubOffPeakWhen", "02;03")
    """Ours. The off-peak hours of the day, separated by ``;``; empty for none."""

    scrub_interval_ms: int = setting("scrubInterval", 3_600_000, least=10, most=1 << 40)
    """Ours. How long the scrub rests between two passes over the log.

    Cost: with a long time, corruption is found later.
    """

    light_queues_enabled: bool = setting("enableLmq", False)
    """Whether clients may use light queues (``%LMQ%…``): they need no topic, and a message may be
    in many of them.

    Cost: each light queue with a message takes some KiB of disk and a directory.
    """

    multi_dispatch_enabled: bool = setting("enableMultiDispatch", False)
    """Whether messages go to the light queues in their property INNER_MULTI_DISPATCH.

    Cost: 20 bytes and a write for each queue that a message names.
    """

    light_queue_quota: bool = setting("enableLmqQuota", False)
    """Whether maxLmqConsumeQueueNum applies."""

    light_queue_count_max: int = setting("maxLmqConsumeQueueNum", 20_000, least=1, most=1 << 31)
    """The most light queues; a message that would create another one is refused.

    Cost: some KiB of disk for each light queue with a message.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        if self.commit_log_directory is not None and "," in str(self.commit_log_directory):
            raise SettingError(
                "storePathCommitLog",
                self.commit_log_directory,
                "expected one directory, not a list",
            )
        check_hours("scrubOffPeakWhen", self.scrub_off_peak_when)

    @property
    def flush_disk_type(self) -> FlushDiskType:
        """When a send is acknowledged, by the present setting."""
        return self.live.flush_disk_type

    def round_up_sizes(self) -> "StoreConfig":
        """Return the same settings with consume queue file sizes rounded up to whole entries."""
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
