"""ConsumeQueue: the commit log offsets of the messages of one queue of one topic.

Message number n (its queue offset) has the 20-byte unit at position 20·n of the queue's address
space; the layout is in protocol/store/queue_layout.py. If the first message of a queue has an
offset above 0, blank units precede it, so that the files can have the names that RocketMQ expects.

RocketMQ appends a unit after the last one whatever its offset is, so after any mishap the rest of
a queue is shifted. Here a unit is only ever written at the position of its offset, and a gap is an
error.
"""

from collections.abc import Callable, Iterable
from mmap import mmap

from rockhopper.broker.store.files.errors import QueueConflictError, QueueGapError
from rockhopper.broker.store.queues.unit_files import points_into_log
from rockhopper.broker.store.queues.unit_queue import Noted, UnitQueue
from rockhopper.protocol.store.queue_layout import (
    BLANK_CONSUME_QUEUE_UNIT,
    BLANK_UNIT_SIZE_FIELD,
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT_SIZE_BYTES,
)

_UNIT_SIZE = CONSUME_QUEUE_UNIT_SIZE_BYTES
_pack_into = CONSUME_QUEUE_UNIT.pack_into
_unpack_from = CONSUME_QUEUE_UNIT.unpack_from
_iter_unpack = CONSUME_QUEUE_UNIT.iter_unpack
# RocketMQ uses 64-bit positions, and the last file must end within them.
_OFFSET_END = 2**62 // _UNIT_SIZE
# An unreadable record has no store time; up to this many records after it are tried instead.
_UNREADABLE_MAX = 1000


class ConsumeQueue(UnitQueue):
    """One queue of a topic whose records hold one message each.

    ``next_offset`` is the offset of the next unit: ``max_offset``, unless the queue is on hold.
    """

    __slots__ = ("next_offset",)
    next_offset: int
    UNIT = CONSUME_QUEUE_UNIT
    UNIT_SIZE_BYTES = _UNIT_SIZE
    IS_BATCH = False
    MESSAGES_PER_UNIT_MAX = 1

    def hold(self) -> None:
        """Keep ``max_offset`` unchanged by appends until ``release``."""
        self.is_held = True

    def release(self) -> None:
        """Make everything that was appended visible to readers."""
        self.is_held = False
        self.max_offset = self.next_offset

    def hides(self, queue_offset: int) -> bool:
        return self.is_held and self.max_offset <= queue_offset < self.next_offset

    def short_state(self) -> tuple[int, int, int] | None:
        if self.is_held or len(self._files.files) != 1 or self.first_position:
            return None
        return self.min_offset, self.next_offset, self.commit_log_end

    def restore(self, min_offset: int, next_offset: int, commit_log_end: int) -> None:
        """See UnitQueue; nothing is read."""
        self.is_restored = True
        self._flushed = next_offset * _UNIT_SIZE
        self._files.restore_first(self._flushed)
        self.min_offset = min_offset
        self.max_offset = self.next_offset = next_offset
        self.commit_log_end = commit_log_end

    # The hot path: once per message sent.

    def append(
        self,
        queue_offset: int,
        commit_log_offset: int,
        size_bytes: int,
        tags_code: int,
        count: int = 1,
        store_time_ms: int = 0,
    ) -> None:
        """See UnitQueue; a unit of this kind holds one message and no time."""
        if queue_offset != self.next_offset or queue_offset >= self._append_limit:
            self._append_slowly(queue_offset, commit_log_offset, size_bytes, tags_code)
            return
        _pack_into(
            self.mapping,
            queue_offset * _UNIT_SIZE - self.mapping_start,
            commit_log_offset,
            size_bytes,
            tags_code,
        )
        self.next_offset = queue_offset + 1
        if not self.is_held:
            self.max_offset = queue_offset + 1
        self.commit_log_end = commit_log_offset + size_bytes
        # Last: the flush thread clears the flag before it reads the end.
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)

    def append_many(
        self,
        first_queue_offset: int,
        units: bytes,
        count: int,
        commit_log_end: int,
        count_per_unit: int = 1,
        store_time_ms: int = 0,
    ) -> None:
        if first_queue_offset != self.next_offset:
            for number, unit in enumerate(_iter_unpack(units)):
                self.append(first_queue_offset + number, *unit)
            return
        while count > (room := max(self._append_limit - first_queue_offset, 0)):
            # Fill the room that is left, then append one unit that makes more room.
            size = room * _UNIT_SIZE
            if room:
                last = CONSUME_QUEUE_UNIT.unpack_from(units, size - _UNIT_SIZE)
                self._append_mapped(first_queue_offset, units[:size], last[0] + last[1])
            unit = CONSUME_QUEUE_UNIT.unpack_from(units, size)
            self.append(first_queue_offset + room, *unit)
            units = units[size + _UNIT_SIZE :]
            first_queue_offset += room + 1
            count -= room + 1
        if count:
            self._append_mapped(first_queue_offset, units, commit_log_end)

    def _append_mapped(self, queue_offset: int, units: bytes, commit_log_end: int) -> None:
        start = queue_offset * _UNIT_SIZE - self.mapping_start
        end = queue_offset + len(units) // _UNIT_SIZE
        self.mapping[start : start + len(units)] = units
        self.next_offset = end
        if not self.is_held:
            self.max_offset = end
        self.commit_log_end = commit_log_end
        if not self._is_dirty:
            self._note_change()

    def _append_slowly(
        self, queue_offset: int, commit_log_offset: int, size_bytes: int, tags_code: int
    ) -> None:
        """Append a unit that needs a file or a mapping, or that may be in the queue already."""
        if not 0 <= queue_offset < _OFFSET_END:
            raise QueueGapError(self.topic, self.queue_id, self.next_offset, queue_offset)
        unit = CONSUME_QUEUE_UNIT.pack(commit_log_offset, size_bytes, tags_code)
        is_empty = not self.has_files
        if not is_empty and queue_offset < self.next_offset:
            self._check_noted(queue_offset, unit)
            return
        if not is_empty and queue_offset > self.next_offset:
            raise QueueGapError(self.topic, self.queue_id, self.next_offset, queue_offset)
        position = queue_offset * _UNIT_SIZE
        file = self._open_for(position)
        start = position - file.base_offset
        if is_empty:
            self.mapping[:start] = BLANK_CONSUME_QUEUE_UNIT * (start // _UNIT_SIZE)
            self.min_offset = self.max_offset = queue_offset
        self.mapping[start : start + _UNIT_SIZE] = unit
        self.next_offset = queue_offset + 1
        if not self.is_held:
            self.max_offset = queue_offset + 1
        self.commit_log_end = commit_log_offset + size_bytes
        self._note_change()

    def _check_noted(self, queue_offset: int, unit: bytes) -> None:
        """Accept a unit that is stored already, and rewrite a lost or damaged one."""
        if queue_offset < self.min_offset:
            return
        position = queue_offset * _UNIT_SIZE
        held = self._files.read(position, position + _UNIT_SIZE)
        if held == unit:
            return
        held_offset, held_size, _ = _unpack_from(held)
        given_offset = _unpack_from(unit)[0]
        if held_offset >= 0 and held_size > 0 and held_offset != given_offset:
            raise QueueConflictError(
                self.topic, self.queue_id, queue_offset, held_offset, given_offset
            )
        self.repair(queue_offset, _unpack_from(unit))

    # Reading.

    def read_units(self, queue_offset: int, count: int) -> bytes:
        end = self.max_offset
        if not self.min_offset <= queue_offset < end:
            return b""
        if queue_offset + count < end:
            end = queue_offset + count
        start = queue_offset * _UNIT_SIZE
        mapping_start = self.mapping_start
        if start >= mapping_start:
            units = self.mapping[start - mapping_start : end * _UNIT_SIZE - mapping_start]
            return units if type(units) is bytes else bytes(units)
        return self._files.read(start, end * _UNIT_SIZE)

    def find_mapping(self, queue_offset: int) -> tuple[mmap, int, int] | None:
        """Return the mapping of the file with a message's unit, the file's start, and log offset.

        Returns None if the message is out of range. The mapping may be closed in the next iteration
        of the loop.

        Raises:
            OSError, StoreError: it cannot be mapped.
        """
        start = queue_offset * _UNIT_SIZE
        file = None
        if self.min_offset <= queue_offset < self.max_offset:
            file = self._files.file_at(start)
        if file is None:
            return None
        mapping, base = file.mapping, file.base_offset
        return mapping, base, _unpack_from(mapping, start - base)[0]

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return commit log offset, size and tags code of one message, or None out of range."""
        unit = self.read_units(queue_offset, 1)
        return _unpack_from(unit) if unit else None

    def read_noted(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return the same as ``entry``, but also for messages that are not visible."""
        start = queue_offset * _UNIT_SIZE
        if not 0 <= queue_offset < self.next_offset:
            return None
        unit = self._files.read(start, start + _UNIT_SIZE)
        return _unpack_from(unit) if len(unit) == _UNIT_SIZE else None

    def read_stored(self, queue_offset: int, commit_log_offset: int) -> tuple[int, ...] | None:
        """Return the stored unit of a record, found by its message."""
        return self.read_noted(queue_offset)

    def around(self, queue_offset: int, count: int) -> tuple[Noted, Noted]:
        """Return queue offset and unit of *count* messages before one, nearest first, and after."""
        first = max(queue_offset - count, self.min_offset)
        return (
            self._read_noted(range(queue_offset - 1, first - 1, -1)),
            self._read_noted(range(queue_offset + 1, min(queue_offset + count, self.max_offset))),
        )

    def _read_noted(self, numbers: Iterable[int]) -> Noted:
        for number in numbers:
            unit = self.read_noted(number)
            if unit is not None:
                yield number, unit

    def repair(self, queue_offset: int, unit: tuple[int, ...]) -> None:
        """Rewrite the unit of a message. Raises OSError."""
        if not 0 <= queue_offset < self.next_offset:
            return
        self._write_at(queue_offset * _UNIT_SIZE, unit)
        if queue_offset == self.next_offset - 1:
            self.commit_log_end = unit[0] + unit[1]

    def next_file_offset(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after that of *queue_offset*."""
        per_file = self.file_size_bytes // _UNIT_SIZE
        return queue_offset - queue_offset % per_file + per_file

    def offset_by_time(
        self, time_ms: int, upper: bool, store_time_of: Callable[[int, int], int]
    ) -> int:
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            examined, store_time_ms = self._readable(middle, high, store_time_of)
            if store_time_ms < 0:
                # If there are many, treat them as deleted; else the messages before them decide.
                is_behind = examined == high
            else:
                is_behind = store_time_ms > time_ms or (store_time_ms == time_ms and not upper)
            if is_behind:
                high = middle
            else:
                low = examined + 1
        if upper:
            return max(low - 1, self.min_offset)
        found, store_time_ms = self._readable(low, self.max_offset, store_time_of)
        return found if store_time_ms >= 0 else low

    def _readable(
        self, start: int, end: int, store_time_of: Callable[[int, int], int]
    ) -> tuple[int, int]:
        """Return the first message of [start, end) that has a store time, and that time.

        If there is none: the end of the examined range, and −1.
        """
        for number in range(start, min(end, start + _UNREADABLE_MAX)):
            entry = self.entry(number)
            store_time_ms = store_time_of(entry[0], entry[1]) if entry else -1
            if store_time_ms >= 0:
                return number, store_time_ms
        return min(end, start + _UNREADABLE_MAX), -1

    def truncate_to(self, queue_offset: int) -> None:
        if queue_offset < self.max_offset and self.has_files:
            self._truncate_to_position(queue_offset * _UNIT_SIZE)

    # The methods that UnitQueue requires.

    def _end_position(self) -> int:
        return self.next_offset * _UNIT_SIZE

    def _start_position(self) -> int:
        return self.min_offset * _UNIT_SIZE

    def _set_range(self, start: int, end: int) -> None:
        self.min_offset = start // _UNIT_SIZE
        self.max_offset = self.next_offset = end // _UNIT_SIZE
        commit_log_offset, size_bytes, _ = self._files.unit_at(end - _UNIT_SIZE)
        self.commit_log_end = commit_log_offset + size_bytes

    def _set_start(self, position: int) -> None:
        self.min_offset = position // _UNIT_SIZE

    def _set_empty(self, next_offset: int) -> None:
        super()._set_empty(next_offset)
        self.next_offset = next_offset

    @staticmethod
    def is_plausible(unit: tuple[int, ...], commit_log_max: int) -> bool:
        return _is_blank(unit) or points_into_log(unit, commit_log_max)

    def _first_counted(self, start: int, end: int) -> int:
        files = self._files.files
        if not files:
            return end
        return self._files.first(
            start, min(end, files[0].end_offset), lambda unit: not _is_blank(unit)
        )

    @staticmethod
    def count_valid(units: bytes, previous: tuple[int, ...] | None, commit_log_max: int) -> int:
        before = -1
        blanks_end = 0
        if previous is None or _is_blank(previous):
            while units.startswith(BLANK_CONSUME_QUEUE_UNIT, blanks_end):
                blanks_end += _UNIT_SIZE
        else:
            before = previous[0]
        count = blanks_end // _UNIT_SIZE
        for commit_log_offset, size_bytes, _ in _iter_unpack(units[blanks_end:]):
            if (
                commit_log_offset <= before
                or not 0 < size_bytes < BLANK_UNIT_SIZE_FIELD
                or commit_log_offset + size_bytes > commit_log_max
            ):
                break
            before = commit_log_offset
            count += 1
        return count


def _is_blank(unit: tuple[int, ...]) -> bool:
    return unit[1] == BLANK_UNIT_SIZE_FIELD and unit[0] == 0
