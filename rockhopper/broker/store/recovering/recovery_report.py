"""The result of a recovery, for the opened store and for the operator."""

from typing import NamedTuple

import structlog

from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.recovering.log_walk import CutTail, Hole

logger = structlog.get_logger("broker.store")

_QUEUES_LOGGED = 20
_HOLES_LOGGED = 20


class RecoveryReport(NamedTuple):
    """What recovery found and did; offsets are commit log offsets."""

    log_end: int
    scanned_from: int
    record_count: int
    """Records read."""
    last_store_time_ms: int
    """That of the newest message found; later store times must not be earlier. 0 without one."""
    holes: list[Hole]
    """Damage that valid records follow; the messages in it cannot be read."""
    lost_tail: Hole | None
    """The last of the holes, if the log ends with it: that part had been flushed, and is missing.
    """
    cut: CutTail | None
    """The torn end, if there was one."""
    changed_queues: dict[QueueKey, int]
    """Queues that lacked messages, and how many were added to each."""
    lost_messages: dict[QueueKey, int]
    """Number of lost messages per queue; their offsets are not used again."""
    indexed_count: int
    """Keys added to the index."""
    next_queue_offsets: dict[QueueKey, int]
    """The next offsets of queues without any file left."""

    def log(self, *, last_exit_clean: bool) -> None:
        """Log the result for the operator.

        After a clean stop no queue lacks anything, unless its files were damaged or deleted since.
        """
        for hole in self.holes[:_HOLES_LOGGED]:
            logger.error(
                "the commit log is damaged; the messages in this range cannot be read",
                from_offset=hole.start,
                to_offset=hole.end,
                reason=hole.reason,
            )
        if len(self.holes) > _HOLES_LOGGED:
            logger.error("the commit log is damaged in further ranges", ranges=len(self.holes))
        if self.lost_tail is not None:
            logger.error(
                "the flushed end of the commit log is missing; its messages are lost, and their "
                "queue offsets are not used again",
                from_offset=self.lost_tail.start,
                to_offset=self.lost_tail.end,
            )
        if self.cut is not None:
            logger.warning(
                "the incomplete end of the commit log was cut",
                from_offset=self.cut.offset,
                size_bytes=self.cut.size_bytes,
                kept_as=self.cut.kept_as,
            )
        if self.lost_messages:
            logger.error(
                "skipping the queue offsets of lost messages",
                queues={f"{topic}/{id_}": n for (topic, id_), n in self.lost_messages.items()},
            )
        if last_exit_clean and self.changed_queues:
            queues = list(self.changed_queues.items())[:_QUEUES_LOGGED]
            logger.warning(
                "queues disagreed with the commit log and have been repaired from it",
                count=len(self.changed_queues),
                queues={f"{topic}/{id_}": n for (topic, id_), n in queues},
            )
        logger.info(
            "store recovered",
            log_end=self.log_end,
            scanned_from=self.scanned_from,
            records=self.record_count,
            queues_changed=len(self.changed_queues),
            keys_indexed=self.indexed_count,
        )
