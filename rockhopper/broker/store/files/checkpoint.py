"""The checkpoint: how much of each part of the store is known to be on disk.

The flush service saves it after its fsyncs. Recovery loads it once and starts to replay the commit
log at the oldest of its times. A checkpoint that is too old makes recovery slower; one that is too
new loses messages. Hence the order: fsync the files, then save.

There are two checkpoints. Rockhopper relies on ``<root>/rockhopper/checkpoint``. After a clean
stop, RocketMQ's own ``<root>/checkpoint`` has the same content. While Rockhopper runs, RocketMQ's
file proves nothing about queues and index, so if RocketMQ is started after a crash of Rockhopper,
it dispatches the whole log again. It has to, because an index file that was being written may have
entries that its header does not count yet.

The file is one big-endian page. RocketMQ (StoreCheckpoint) reads and writes the same layout:

    offset  size  field                  RocketMQ's name
         0     8  commit_log_ms          physicMsgTimestamp
         8     8  consume_queue_ms       logicsMsgTimestamp
        16     8  index_ms               indexMsgTimestamp
        24     8  master_flushed_offset  masterFlushedOffset
        32     8  confirm_offset         confirmPhyOffset
        40     8  flushed_offset         zeros: only our own file records up to where the log is
                                         on disk, for readers of the files of a running broker
        48     4  CRC-32 of all these    zeros: only our own file has it
        52  4044  zeros
"""

from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.disk import make_directories_durably, write_atomically
from rockhopper.protocol.store.queue_layout import (
    CHECKPOINT,
    decode_checkpoint,
    encode_own_checkpoint,
)

log = structlog.get_logger("broker.store")

FILE_SIZE_BYTES = 4096
CLOCK_STEP_MARGIN_MS = 3_000


class StoreCheckpoint(NamedTuple):
    """Store times of the newest messages on disk, and commit log offsets; 0 if unknown."""

    commit_log_ms: int = 0
    consume_queue_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    flushed_offset: int = 0

    def replay_from_ms(self) -> int:
        """Return the store time from which on messages may be missing from the consume queues.

        Store times are wall-clock times, which a time server may set back a little while messages
        arrive. Replaying a message twice is harmless, and skipping one is not: hence the margin.
        """
        return max(0, min(self.commit_log_ms, self.consume_queue_ms) - CLOCK_STEP_MARGIN_MS)


def load(path: Path) -> StoreCheckpoint:
    """Read a saved checkpoint. Return zeros if the file is missing or damaged.

    RocketMQ may leave an empty or a short file. Missing bytes count as zeros, as they do for
    RocketMQ.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return StoreCheckpoint()
    checkpoint = StoreCheckpoint(*decode_checkpoint(data))
    if checkpoint == StoreCheckpoint() and data.strip(b"\0"):
        log.warning("the checkpoint is damaged; the whole commit log is replayed", path=str(path))
    return checkpoint


def save(path: Path, checkpoint: StoreCheckpoint) -> None:
    """Replace the checkpoint. Blocks on fsync; a crash leaves the old one or the new one.

    Raises:
        OSError: the old one is still in place.
    """
    is_own = checkpoint.flushed_offset > 0
    page = encode_own_checkpoint(*checkpoint) if is_own else CHECKPOINT.pack(*checkpoint[:-1])
    write_atomically(path, page.ljust(FILE_SIZE_BYTES, b"\0"))


def load_newest(layout: StoreLayout) -> StoreCheckpoint:
    """Return RocketMQ's checkpoint if it covers the queues, else our own."""
    theirs = load(layout.checkpoint)
    return theirs if theirs.consume_queue_ms else load(layout.own_checkpoint)


def save_at_start(layout: StoreLayout, checkpoint: StoreCheckpoint) -> None:
    """Save what recovery has verified, so that recovery from a later crash starts there.

    Raises:
        OSError: the old ones are still in place.
    """
    make_directories_durably(layout.own)
    save(layout.own_checkpoint, checkpoint)
    theirs = checkpoint._replace(consume_queue_ms=0, index_ms=0, flushed_offset=0)
    save(layout.checkpoint, theirs)


def save_at_stop(layout: StoreLayout, checkpoint: StoreCheckpoint) -> None:
    """Record in RocketMQ's checkpoint, after a clean stop, that everything is on disk.

    Raises:
        OSError: the old one is still in place.
    """
    save(layout.checkpoint, checkpoint._replace(flushed_offset=0))
