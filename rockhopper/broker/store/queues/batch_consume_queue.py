"""BatchConsumeQueue: the queue of a BatchCQ topic, whose records may hold several messages each.

Each record has one 46-byte unit (protocol/store/queue_layout.py) with the queue offset of the
record's first message and their number. A binary search over the units finds a message.
"""

from collections.abc import Callable, Iterable

from rockhopper.broker.store.files.errors import QueueConflictError, QueueGapError
from rockhopper.broker.store.queues.unit_files import points_into_log
from rockhopper.broker.store.queues.unit_queue import Noted, UnitQueue
from rockhopper.protocol.store.expected import BATCH_COUNT_MAX
from rockhopper.protocol.store.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_CONSUME_QUEUE_UNIT_SIZE_BYTES,
    COMPACTED_OFFSET_NONE,
    CONSUME_QUEUE_UNIT,
)

_UNIT_SIZE = BATCH_CONSUME_QUEUE_UNIT_SIZE_BYTES
_PLACE, _STORE_TIME, _BASE, _COUNT, _COMPACTED = 0, 3, 4, 5, 6


class BatchConsumeQueue(UnitQueue):
    """One queue of a BatchCQ topic."""

    __slots__ = ("_end", "_start")
    _end: int
    _start: int
    UNIT = BATCH_CONSUME_QUEUE_UNIT
    UNIT_SIZE_BYTES = _UNIT_SIZE
    IS_BATCH = True
    MESSAGES_PER_UNIT_MAX = BATCH_COUNT_MAX

    def append_many(
        self,
        first_queue_offset: int,
        units: bytes,
        count: int,
        commit_log_end: int,
        count_per_unit: int = 1,
        store_time_ms: int = 0,
    ) -> None:
        offset = first_queue_offset
        for place, size_bytes, tags_code in CONSUME_QUEUE_UNIT.iter_unpack(units):
            self.append(offset, place, size_bytes, tags_code, count_per_unit, store_time_ms)
            offset += count_per_unit

    def append(
        self,
        queue_offset: int,
        commit_log_offset: int,
        size_bytes: int,
        tags_code: int,
        count: int = 1,
        store_time_ms: int = 0,
    ) -> None:
        unit = self.UNIT.pack(
            commit_log_offset,
            size_bytes,
            tags_code,
            store_time_ms,
            queue_offset,
            count,
            COMPACTED_OFFSET_NONE,
            0,
        )
        if self.has_files and queue_offset != self.max_offset:
            if queue_offset > self.max_offset:
                raise QueueGapError(self.topic, self.queue_id, self.max_offset, queue_offset)
            self._check_noted(queue_offset, commit_log_offset)
            return
        is_empty = not self.has_files
        position = 0 if is_empty else self._end
        if position >= self._append_limit * _UNIT_SIZE:
            self._open_for(position)
        start = position - self.mapping_start
        self.mapping[start : start + _UNIT_SIZE] = unit
        if is_empty:
            self.min_offset = queue_offset
        self._end = position + _UNIT_SIZE
        self.max_offset = queue_offset + count
        self.commit_log_end = commit_log_offset + size_bytes
        self._note_change()

    def _check_noted(self, base_offset: int, commit_log_offset: int) -> None:
        held = self.entry(base_offset)
        if held is not None and held[0] != commit_log_offset:
            raise QueueConflictError(
                self.topic, self.queue_id, base_offset, held[0], commit_log_offset
            )

    def read_units(self, queue_offset: int, count: int) -> bytes:
        if not self.min_offset <= queue_offset < self.max_offset:
            return b""
        position = self._files.first(
            self._start, self._end, lambda unit: unit[_BASE] + unit[_COUNT] > queue_offset
        )
        return self._files.read(position, min(self._end, position + count * _UNIT_SIZE))

    def entry(self, queue_offset: int) -> tuple[int, ...] | None:
        unit = self.read_units(queue_offset, 1)
        return self.UNIT.unpack(unit) if unit else None

    read_noted = entry

    def is_in_line(self, queue_offset: int, units: list[tuple[int, ...]], *, to_end: bool) -> bool:
        """Return whether *units*, read from a message on, each begin where the previous one ends.

        With *to_end* the last one must be the last of the queue.
        """
        expected = queue_offset
        for number, unit in enumerate(units):
            base, end = unit[_BASE], unit[_BASE] + unit[_COUNT]
            if not (base == expected or (number == 0 and base <= expected < end)):
                return False
            expected = end
        return expected == self.max_offset if to_end else expected <= self.max_offset

    def around(self, queue_offset: int, count: int) -> tuple[Noted, Noted]:
        """Return queue offset and unit of *count* records before *queue_offset*, and after it.

        Those before it come nearest first. If the unit of the record at *queue_offset* is wrong,
        the record is among those after.
        """
        at = self._files.first(
            self._start, self._end, lambda unit: unit[_BASE] + unit[_COUNT] > queue_offset
        )
        behind = at
        if at < self._end and self._files.unit_at(at)[_BASE] <= queue_offset:
            behind += _UNIT_SIZE
        first = max(at - count * _UNIT_SIZE, self._start)
        return (
            self._read_noted(range(at - _UNIT_SIZE, first - 1, -_UNIT_SIZE)),
            self._read_noted(
                range(behind, min(behind + count * _UNIT_SIZE, self._end), _UNIT_SIZE)
            ),
        )

    def _read_noted(self, positions: Iterable[int]) -> Noted:
        for position in positions:
            unit = self._files.unit_at(position)
            yield unit[_BASE], unit

    def read_stored(self, queue_offset: int, commit_log_offset: int) -> tuple[int, ...] | None:
        """Return the stored unit of a record, found by its first message or by its log offset."""
        position = self._position_of(queue_offset, commit_log_offset)
        return None if position is None else self._files.unit_at(position)

    def _position_of(self, queue_offset: int, commit_log_offset: int) -> int | None:
        for field, wanted in ((_BASE, queue_offset), (_PLACE, commit_log_offset)):
            position = self._first_from(field, wanted)
            if position < self._end and self._files.unit_at(position)[field] == wanted:
                return position
        return None

    def _first_from(self, field: int, wanted: int) -> int:
        return self._files.first(self._start, self._end, lambda unit: unit[field] >= wanted)

    def repair(self, queue_offset: int, unit: tuple[int, ...]) -> None:
        """Rewrite the unit of a record. Raises OSError."""
        position = self._position_of(queue_offset, unit[_PLACE])
        if position is None:
            return
        self._write_at(position, unit[:_COMPACTED] + self._files.unit_at(position)[_COMPACTED:])
        if position + _UNIT_SIZE == self._end:
            self.commit_log_end = unit[_PLACE] + unit[1]
            self.max_offset = unit[_BASE] + unit[_COUNT]

    def offset_by_time(
        self, time_ms: int, upper: bool, store_time_of: Callable[[int, int], int] | None = None
    ) -> int:
        """See UnitQueue; the units hold the store times, so *store_time_of* is not needed."""
        if upper:
            behind = self._files.first(
                self._start, self._end, lambda unit: unit[_STORE_TIME] > time_ms
            )
            position = max(behind - _UNIT_SIZE, self._start)
        else:
            position = self._files.first(
                self._start, self._end, lambda unit: unit[_STORE_TIME] >= time_ms
            )
        return self._files.unit_at(position)[_BASE] if position < self._end else self.max_offset

    def truncate_to(self, queue_offset: int) -> None:
        if queue_offset < self.max_offset and self.has_files:
            self._truncate_to_position(
                self._files.first(
                    self._start, self._end, lambda unit: unit[_BASE] + unit[_COUNT] > queue_offset
                )
            )

    # The methods that UnitQueue requires.

    def _end_position(self) -> int:
        return self._end

    def _start_position(self) -> int:
        return self._start

    def _set_range(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self.min_offset = self._files.unit_at(start)[_BASE]
        last = self._files.unit_at(end - _UNIT_SIZE)
        self.max_offset = last[_BASE] + last[_COUNT]
        self.commit_log_end = last[0] + last[1]

    def _set_start(self, position: int) -> None:
        self._start = position
        is_empty = position >= self._end
        self.min_offset = self.max_offset if is_empty else self._files.unit_at(position)[_BASE]

    def _set_empty(self, next_offset: int) -> None:
        super()._set_empty(next_offset)
        self._start = self._end = 0

    @staticmethod
    def is_plausible(unit: tuple[int, ...], commit_log_max: int) -> bool:
        return points_into_log(unit, commit_log_max) and unit[_BASE] >= 0 and unit[_COUNT] > 0

    @staticmethod
    def count_valid(units: bytes, previous: tuple[int, ...] | None, commit_log_max: int) -> int:
        number = 0
        for number, unit in enumerate(BATCH_CONSUME_QUEUE_UNIT.iter_unpack(units)):
            if (
                not BatchConsumeQueue.is_plausible(unit, commit_log_max)
                or (previous is not None and unit[0] <= previous[0])
                or (previous is not None and unit[_BASE] < previous[_BASE] + previous[_COUNT])
            ):
                return number
            previous = unit
        return number + 1 if units else 0
