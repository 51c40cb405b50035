"""RecordSearch: what every search for messages checks of a record, and how long its steps are.

An index, or the hash of a tag, names candidates; the record itself decides. A look at one costs
what its sender has chosen, up to 4 MB, so a step counts records and bytes.
"""

from collections.abc import Callable

from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_message

BODY_BYTES_MAX = 8 << 20
# A millisecond or two.
RECORDS_PER_STEP = 32
BYTES_PER_STEP = 1 << 20


class RecordSearch:
    """A search for the newest messages of a topic in a time, both ends included."""

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
        """*wanted* is what ``is_carried`` looks for.

        *record_at* gives the verified record at a commit log offset, empty when there is none.
        """
        self._topic, self._wanted, self._count_max = topic, wanted, count_max
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._record_at, self._is_visible = record_at, is_visible
        self._found: list[tuple[int, bytes]] = []
        """Commit log offsets and records."""
        self._step_records = self._step_bytes = 0
        self.looked_bytes = 0
        """The size of the record that was looked at last."""

    def is_carried(self, message: StoredMessage) -> bool:
        """Whether *message* has what is wanted."""
        raise NotImplementedError

    def is_step_full(self) -> bool:
        """Whether others should be served before the next record is looked at."""
        return self._step_records >= RECORDS_PER_STEP or self._step_bytes >= BYTES_PER_STEP

    def next_step(self) -> None:
        """Others have been served."""
        self._step_records = self._step_bytes = 0

    def look_at(self, log_offset: int) -> bytes:
        """The record there; empty if it is not wanted, or there is none."""
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
