"""RecordSearch: the check of each record in a message search, and the length of its steps.

An index, or the hash of a tag, names candidates; the record itself decides. The cost of reading one
depends on its size, up to 4 MB, so a step counts records and bytes.
"""

from collections.abc import Callable

from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_message

BODY_BYTES_MAX = 8 << 20
# A millisecond or two.
RECORDS_PER_STEP = 32
BYTES_PER_STEP = 1 << 20


class RecordSearch:
    """A search for the newest messages of a topic within a time range, both ends included."""

    def __init__(
        self,
        topic: str,
        wanted: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        record_at: Callable[[int], bytes],
        is_visible: Callable[[StoredMessage], bool],
    ) -> None:
        """*wanted* is the value that ``is_carried`` looks for.

        *record_at* returns the verified record at a commit log offset, or empty bytes.
        """
        self._topic, self._wanted, self._count_max = topic, wanted, count_max
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._record_at, self._is_visible = record_at, is_visible
        self._found: list[tuple[int, bytes]] = []
        """Commit log offsets and records."""
        self._step_records = self._step_bytes = 0
        self.looked_bytes = 0
        """The size of the record that was read last."""

    def is_carried(self, message: StoredMessage) -> bool:
        """Return whether *message* has the wanted value."""
        raise NotImplementedError

    def is_step_full(self) -> bool:
        """Return whether other work should run before the next record is read."""
        return self._step_records >= RECORDS_PER_STEP or self._step_bytes >= BYTES_PER_STEP

    def next_step(self) -> None:
        """Start a new step, after other work has run."""
        self._step_records = self._step_bytes = 0

    def look_at(self, log_offset: int) -> bytes:
        """Return the record at *log_offset*; empty if it does not match or does not exist."""
        record = self._record_at(log_offset)
        self._step_records += 1
        self._step_bytes += len(record)
        self.looked_bytes = len(record)
        message = decode_message(record) if record else None
        if (
            message is None
            or message.topic != self._topic
            or not self._begin_ms <= message.store_time_ms <= self._end_ms
            or not self.is_carried(message)
            or not self._is_visible(message)
        ):
            return b""
        return record
