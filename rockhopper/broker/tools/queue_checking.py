"""Compare the consume queues with the log: each record has its unit, and each unit its record.

The units that records expect are collected by queue, so that a queue is opened once for many
messages. Then they are compared with the actual bytes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.queues.consume_queue_ext import ConsumeQueueExt
from rockhopper.broker.store.recovering.resizing import FoundFile, common_size, odd_files
from rockhopper.broker.tools.findings import REBUILD, Findings
from rockhopper.broker.tools.queue_files import QueueFiles
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.store.compare import Verdict, compare_unit
from rockhopper.protocol.store.expected import ExpectedUnit, Place, Record, expect_units
from rockhopper.protocol.store.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    BLANK_UNIT_SIZE_FIELD,
    CONSUME_QUEUE_UNIT,
)
from rockhopper.protocol.store.walking import PlainRun
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH

_GATHERED_BYTES_MAX = 16 << 20
_RUN_COST_BYTES = 200
_SLICE_BYTES = 1 << 20
_DELAY_MS_MAX = 366 * 86_400_000


class _Gathered:
    """The expected units of one queue, and the ranges of all units expected so far."""

    __slots__ = ("batches", "claimed", "runs")

    def __init__(self) -> None:
        self.runs: list[tuple[int, list[bytes], int]] = []
        self.batches: list[ExpectedUnit] = []
        self.claimed: list[list[int]] = []

    def append_units(self, first_offset: int, units: bytes, count: int) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last[0] + last[2] == first_offset:
            last[1].append(units)
            self.runs[-1] = last[0], last[1], last[2] + count
        else:
            self.runs.append((first_offset, [units], count))

    def claim(self, start: int, end: int) -> None:
        if self.claimed and self.claimed[-1][1] == start:
            self.claimed[-1][1] = end
        else:
            self.claimed.append([start, end])


class QueueCheck:
    """A comparison of all queues with the log."""

    def __init__(self, view: StoreView, findings: Findings) -> None:
        self._view = view
        self._findings = findings
        self._queues: dict[tuple[str, int], _Gathered] = {}
        self._batch_topics: dict[str, bool] = {}
        self._exts: dict[tuple[str, int], ConsumeQueueExt | None] = {}
        self._gathered_bytes = 0
        self.unit_count = 0

    # Units from the log.

    def take_runs(self, runs: list[PlainRun]) -> None:
        """Expect the units of plain records."""
        for topic, queue_id, first_offset, count, units, _, _, _ in runs:
            if self._is_batch(topic):
                self._ask_for_batches(topic, queue_id, first_offset, units)
            else:
                self._ask(topic, queue_id, first_offset, units, count)
        if self._gathered_bytes > _GATHERED_BYTES_MAX:
            self.compare()

    def take_record(self, record: Record) -> None:
        """Expect the units of one record of any kind."""
        topic = record.topic.decode("utf-8", "replace")
        is_batch = bool(record.sys_flag & SYS_FLAG_INNER_BATCH) or self._is_batch(topic)
        levels = self._view.levels
        units = expect_units(record, is_batch=is_batch, delay_ms=levels.delay_ms)
        for unit in units:
            if is_batch and unit.place.queue_id == record.queue_id and unit.place.topic == topic:
                self._gather(*unit.place[:2]).batches.append(unit)
            else:
                packed = CONSUME_QUEUE_UNIT.pack(*unit.fields(is_batch=False))
                self._ask(*unit.place[:3], packed, 1)

    def _is_batch(self, topic: str) -> bool:
        known = self._batch_topics.get(topic)
        if known is None:
            known = self._batch_topics[topic] = self._view.queues.is_batch(topic)
        return known

    def _gather(self, topic: str, queue_id: int) -> _Gathered:
        self._gathered_bytes += _RUN_COST_BYTES
        return self._queues.setdefault((topic, queue_id), _Gathered())

    def _ask(self, topic: str, queue_id: int, offset: int, units: bytes, count: int) -> None:
        self._gathered_bytes += len(units)
        self._gather(topic, queue_id).append_units(offset, units, count)

    def _ask_for_batches(self, topic: str, queue_id: int, offset: int, units: bytes) -> None:
        batches = self._gather(topic, queue_id).batches
        for number, unit in enumerate(CONSUME_QUEUE_UNIT.iter_unpack(units)):
            batches.append(_expect_plain(topic, queue_id, offset + number, unit))

    # Comparison.

    def compare(self) -> None:
        """Compare the collected units with the actual ones."""
        for (topic, queue_id), gathered in self._queues.items():
            if not gathered.runs and not gathered.batches:
                continue
            try:
                if gathered.batches:
                    queue = self._view.queues.open(topic, queue_id, is_batch=True)
                    self._compare_batches(topic, queue_id, queue, gathered)
                if gathered.runs:
                    queue = self._view.queues.open(topic, queue_id)
                    self._compare_runs(topic, queue_id, queue, gathered)
            except ValueError as error:
                self._findings.report(
                    "record", self._view.layout.commit_log, str(error), REBUILD, topic=topic
                )
            gathered.runs, gathered.batches = [], []
        self._gathered_bytes = 0

    def _compare_runs(
        self, topic: str, queue_id: int, queue: QueueFiles, gathered: _Gathered
    ) -> None:
        for first, pieces, count in gathered.runs:
            wanted = b"".join(pieces)
            start = first * queue.unit.size
            gathered.claim(first, first + count)
            self.unit_count += count
            held = queue.read(start, start + len(wanted))
            if held == wanted:
                continue
            differing = [
                Differing(
                    queue,
                    start + at,
                    _expect_plain(topic, queue_id, first + at // queue.unit.size, want),
                    have,
                )
                for at, want, have in _differences(wanted, held)
            ]
            self._judge(topic, queue_id, differing)

    def _compare_batches(
        self, topic: str, queue_id: int, queue: QueueFiles, gathered: _Gathered
    ) -> None:
        position = queue.first_behind(gathered.batches[0].log_offset)
        differing = []
        for wanted in gathered.batches:
            unit = queue.unit_at(position)
            gathered.claim(position // queue.unit.size, position // queue.unit.size + 1)
            self.unit_count += 1
            if self._compare(queue, wanted, unit) is not Verdict.RIGHT:
                differing.append(Differing(queue, position, wanted, unit))
            position += queue.unit.size
        self._judge(topic, queue_id, differing)

    def _compare(self, queue: QueueFiles, unit: ExpectedUnit, held: tuple[int, ...]) -> Verdict:
        return compare_unit(unit, held, self._view.record_at, is_batch=queue.is_batch)

    def _judge(self, topic: str, queue_id: int, differing: list["Differing"]) -> None:
        missing: list[Differing] = []
        end = differing[0].queue.find_end() if differing else 0
        for each in differing:
            if self._view.is_gone(topic, each.wanted.log_offset):
                continue
            if not each.held[1]:
                if each.position >= end and not self._view.is_clean:
                    self._findings.notes["messages that their queues do not have yet"] += 1
                elif missing and missing[-1].position + each.queue.unit.size == each.position:
                    missing.append(each)
                else:
                    self._name_missing(topic, queue_id, missing)
                    missing = [each]
            elif (what := self._explain_wrong(topic, queue_id, each)) is not None:
                self._name(topic, queue_id, each, what)
        self._name_missing(topic, queue_id, missing)

    def _name_missing(self, topic: str, queue_id: int, missing: list["Differing"]) -> None:
        if missing:
            count = len(missing)
            what = "the unit of a message is missing" if count == 1 else "units are missing"
            self._name(topic, queue_id, missing[0], what, **({"count": count} if count > 1 else {}))

    def _name(
        self, topic: str, queue_id: int, each: "Differing", what: str, **more: object
    ) -> None:
        self._findings.report(
            "queue",
            each.queue.path_at(each.position),
            what,
            REBUILD,
            topic=topic,
            queue=queue_id,
            queue_offset=each.wanted.place.first_offset,
            file_position=each.queue.file_position(each.position),
            log_offset=each.wanted.log_offset,
            **more,
        )

    def _explain_wrong(self, topic: str, queue_id: int, each: "Differing") -> str | None:
        """Return the problem of a unit that differs from the log; None if it is acceptable."""
        wanted, (offset, size_bytes, code, *_) = each.wanted, each.held
        if not wanted.store_time_ms:
            record = self._view.record_at(wanted.log_offset)
            wanted = wanted._replace(store_time_ms=0 if record is None else record.store_time_ms)
        match self._compare(each.queue, wanted, each.held):
            case Verdict.COUNT:
                return "the number or count of its messages differs from the record"
            case Verdict.EXTENDED:
                return self._explain_wrong_ext(topic, queue_id, code, wanted.tags_code)
            case Verdict.DUE:
                return self._explain_not_due(code, wanted)
            case Verdict.CODE:
                return f"its tags code is {code}, not {wanted.tags_code}"
            case Verdict.ELSEWHERE:
                return (
                    f"it points to {size_bytes} bytes at log offset {offset}, but its message has "
                    f"{wanted.size_bytes} bytes at {wanted.log_offset}"
                )
            case Verdict.LEFTOVER:
                self._findings.notes["records whose queue offset a later record also has"] += 1
        return None

    def _explain_not_due(self, due_ms: int, wanted: ExpectedUnit) -> str | None:
        """Return the problem of a due time; None if changed delay levels explain it."""
        delay_ms = due_ms - wanted.store_time_ms
        if delay_ms % 1000 == 0 and 0 < delay_ms <= _DELAY_MS_MAX:
            what = "delayed messages with due times from other delay levels than those of --config"
            self._findings.notes[what] += 1
            return None
        return f"it is due at {due_ms}, but by the delay levels at {wanted.tags_code}"

    def _explain_wrong_ext(self, topic: str, queue_id: int, address: int, code: int) -> str | None:
        key = topic, queue_id
        if key not in self._exts:
            try:
                self._exts[key] = ConsumeQueueExt(self._view.layout.consume_queue_ext(*key))
            except CorruptFileError:
                self._exts[key] = None
        ext = self._exts[key]
        unit = None if ext is None else ext.get(address)
        if unit is None:
            return f"its extension unit at {address + 2**63} cannot be read"
        return None if unit.tags_code == code else "its extension unit has another tags code"

    # Units without a record.

    def finish(self) -> None:
        """Compare the remaining units, and check the units that no record expects."""
        self.compare()
        files: dict[bool, list[list[FoundFile]]] = {False: [], True: []}
        for topic, queue_id, is_batch in self._view.queues:
            gathered = self._queues.get((topic, queue_id), _Gathered())
            queue = self._view.queues.open(topic, queue_id, is_batch=is_batch)
            files[is_batch].append(queue.files)
            at = queue.start // queue.unit.size
            end = queue.find_end() // queue.unit.size
            for start, stop in (*sorted(gathered.claimed), [end, end]):
                # A record with a damaged head may have claimed any offset.
                if at < min(start, end):
                    self._look_for_strays(topic, queue_id, queue, at, min(start, end))
                at = max(at, stop)

        for is_batch, found in files.items():
            self._look_at_sizes(found, is_batch=is_batch)

    def _find_usual_size(self, files: list[FoundFile], *, is_batch: bool) -> int | None:
        unit = BATCH_CONSUME_QUEUE_UNIT if is_batch else CONSUME_QUEUE_UNIT
        store, noted = self._view.config.store, self._view.noted
        configured_bytes = (
            store.batch_consume_queue_file_size_bytes
            if is_batch
            else store.consume_queue_file_size_bytes
        )
        noted_bytes = noted.file_sizes[1 + is_batch] if noted is not None else 0
        return common_size(files, unit.size, noted_bytes, configured_bytes)

    def _look_at_sizes(self, queues: list[list[FoundFile]], *, is_batch: bool) -> None:
        """Report files of odd size: a broker resizes them, or does not start."""
        found = [file for files in queues for file in files]
        size_bytes = self._find_usual_size(found, is_batch=is_batch)
        if size_bytes is None and len({file.size_bytes for file in found}) < 2:
            return
        right = f"not {size_bytes}" if size_bytes else "and the right size is unknown"
        for file in odd_files(queues, size_bytes or 0):
            what = f"the file has {file.size_bytes} bytes, {right}"
            self._findings.report("file", file.path, what, REBUILD)

    def _look_for_strays(
        self, topic: str, queue_id: int, queue: QueueFiles, start: int, end: int
    ) -> None:
        view = self._view
        first: tuple[int, tuple[int, ...]] | None = None
        count = 0
        for number, unit in _units(queue, start, end):
            if unit[0] >= view.log.min_offset and not self._is_explained(topic, unit):
                first = first or (number, unit)
                count += 1
        if first is not None:
            number, unit = first
            first_offset = unit[4] if queue.is_batch else number
            wanted = _expect_plain(topic, queue_id, first_offset, unit[:3])
            each = Differing(queue, number * queue.unit.size, wanted, unit[:3])
            what = "a unit points to no message of its queue"
            self._name(topic, queue_id, each, what, **({"count": count} if count > 1 else {}))

    def _is_explained_beyond_end(self) -> bool:
        view = self._view
        if not view.is_live and not view.is_clean:
            self._findings.notes["units of messages that are not in the log"] += 1
        return not view.is_clean

    def _is_explained(self, topic: str, unit: tuple[int, ...]) -> bool:
        offset, size_bytes = unit[:2]
        if size_bytes == BLANK_UNIT_SIZE_FIELD and not offset:
            return True
        view = self._view
        if offset >= view.end:
            return self._is_explained_beyond_end()
        if view.is_gone(topic, offset) or view.is_in_hole(offset, offset + max(size_bytes, 1)):
            return True
        record = view.record_at(offset)
        if size_bytes > 0 and (record is None or record.size_bytes != size_bytes):
            # Recovery writes such units in place of lost messages, so that readers skip them.
            self._findings.notes["queue offsets of messages that were lost earlier"] += 1
            return True
        return False


class Differing(NamedTuple):
    """A unit that differs from the log."""

    queue: QueueFiles
    position: int
    wanted: ExpectedUnit
    held: tuple[int, ...]


def _expect_plain(
    topic: str, queue_id: int, queue_offset: int, fields: tuple[int, ...]
) -> ExpectedUnit:
    log_offset, size_bytes, code = fields
    return ExpectedUnit(Place(topic, queue_id, queue_offset, 1), log_offset, size_bytes, code, 0)


def _differences(
    wanted: bytes, held: bytes
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    size = CONSUME_QUEUE_UNIT.size
    pairs = zip(
        CONSUME_QUEUE_UNIT.iter_unpack(wanted), CONSUME_QUEUE_UNIT.iter_unpack(held), strict=True
    )
    for number, (want, have) in enumerate(pairs):
        if want != have:
            yield number * size, want, have


def _units(queue: QueueFiles, start: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    size = queue.unit.size
    step = _SLICE_BYTES // size
    for at in range(start, end, step):
        units = queue.read(at * size, min(at + step, end) * size)
        yield from enumerate(queue.unit.iter_unpack(units), at)
