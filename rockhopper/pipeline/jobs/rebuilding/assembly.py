"""The last steps of a rebuild, after all tasks: queue starts, gaps, batch queues, the index."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from rockhopper.pipeline.derived.entries import UNIT, QueueKey
from rockhopper.pipeline.derived.index_files import file_names
from rockhopper.pipeline.derived.queue_files import QueueWriter, pack_units
from rockhopper.pipeline.jobs.rebuilding.work import (
    IndexTask,
    PieceResult,
    PieceTask,
    UnitRun,
    Worksite,
    batch_units,
    first_key_ms,
    keys_path,
    rebuild_pieces,
)
from rockhopper.pipeline.store_source.scan import DamagedRange
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN
from rockhopper.protocol.store.store_paths import INDEX_DIRECTORY

_RECORD_SIZE_BYTES_MAX = 2**31 - 2


@dataclass(frozen=True, slots=True)
class QueueNote:
    """A note about a queue for the person who runs the rebuild."""

    topic: str
    queue_id: int
    queue_offset: int
    message_count: int
    reason: str


class Assembly:
    """Completes the output of the tasks; ``notes`` lists the irregularities."""

    def __init__(self, place: Worksite, tasks: list[PieceTask], results: list[PieceResult]) -> None:
        self._place = place
        self._tasks = tasks
        self._results = results
        self._holes = sorted(
            (damage for result in results for damage in result.damages),
            key=lambda damage: damage.start,
        )
        self.notes: list[QueueNote] = []
        self.queue_count = 0
        self.unit_count = 0

    def _note_refused(self) -> None:
        for result in self._results:
            for key, queue_offset, position in result.refused:
                reason = f"the record at {position} claims an offset that it cannot have"
                self._note(key, queue_offset, 1, f"{reason}; it is in no queue")

    def finish_queues(self) -> None:
        """Complete all queues."""
        self._note_refused()
        by_queue: dict[QueueKey, list[tuple[int, UnitRun]]] = {}
        for result in self._results:
            for key, runs in result.runs.items():
                by_queue.setdefault(key, []).extend((result.number, run) for run in runs)
        self._write_conflicts_again(by_queue)
        for key, found in by_queue.items():
            self._finish_plain(key, sorted((run for _, run in found), key=lambda run: run.first))
        batches = {key for result in self._results for key in result.batches}
        for key in sorted(batches):
            self._write_batches(key)
        self.queue_count = len(by_queue) + len(batches)

    def _note(self, key: QueueKey, queue_offset: int, count: int, reason: str) -> None:
        self.notes.append(QueueNote(key.topic, key.queue_id, queue_offset, count, reason))

    def _write_conflicts_again(self, by_queue: dict[QueueKey, list[tuple[int, UnitRun]]]) -> None:
        """If two records claim an offset, write the later record, whichever task wrote first."""
        numbers: set[int] = set()
        queues: set[QueueKey] = set()
        for key, found in by_queue.items():
            ordered = sorted(found, key=lambda item: item[1].first)
            reach, owner = -1, -1
            for number, run in ordered:
                if run.first < reach:
                    queues.add(key)
                    numbers.update((number, owner))
                    count = min(reach, run.behind) - run.first
                    self._note(key, run.first, count, "claimed by two records; the later counts")
                if run.behind > reach:
                    reach, owner = run.behind, number
        for number in sorted(numbers):
            rebuild_pieces(replace(self._tasks[number], only=frozenset(queues)))

    def _finish_plain(self, key: QueueKey, runs: list[UnitRun]) -> None:
        writer = QueueWriter(self._place.output, key, self._place.geometry.queue_file_size(key))
        chain: list[UnitRun] = []
        for run in runs:
            if chain and run.behind <= chain[-1].behind:
                continue
            if chain and not _may_follow(chain[-1], run):
                chain = self._lighter_side_erased(writer, key, chain, run)
                continue
            chain.append(run)
        writer.fill_front(chain[0].first)
        self.unit_count += chain[-1].behind - chain[0].first
        for before, run in pairwise(chain):
            if run.first > before.behind:
                self._fill_gap(writer, key, before, run)

    def _lighter_side_erased(
        self, writer: QueueWriter, key: QueueKey, chain: list[UnitRun], run: UnitRun
    ) -> list[UnitRun]:
        """Erase one side of a gap with more offsets than the log has room for; one side is damaged.

        The side with fewer messages is erased.
        """
        chained = sum(one.behind - one.first for one in chain)
        erased, kept = ([run], chain) if run.behind - run.first <= chained else (chain, [run])
        for one in erased:
            writer.erase(one.first, one.behind)
            count = one.behind - one.first
            reason = (
                f"claimed by records at {one.start} that cannot have them; they are in no queue"
            )
            self._note(key, one.first, count, reason)
        return kept

    def _fill_gap(self, writer: QueueWriter, key: QueueKey, before: UnitRun, run: UnitRun) -> None:
        """Write units for lost messages that point into the damaged part of the log.

        For a broker a queue would end at a hole. The commit log offsets of these units increase by
        one.
        """
        missing = run.first - before.behind
        start, stop = before.end, run.start
        for hole in self._holes:
            if hole.end > start and hole.start < run.start:
                start, stop = max(start, hole.start) + 1, min(hole.end, run.start)
                break
        start = max(min(start, run.start - missing), before.last + 1)
        units = np.zeros(missing, UNIT)
        units["position"] = start + np.arange(missing)
        units["size"] = np.clip(stop - units["position"], 1, _RECORD_SIZE_BYTES_MAX)
        writer.write(before.behind, pack_units(units, False))
        self._note(key, before.behind, missing, "lost with a damaged place; readers step over them")

    def _write_batches(self, key: QueueKey) -> None:
        writer = QueueWriter(self._place.output, key, self._place.geometry.queue_file_size(key))
        number, reach = 0, -1
        for result in self._results:
            units = batch_units(self._place, result, key)
            if not len(units):
                continue
            ends = units["offset"] + units["n"]
            reached = np.maximum.accumulate(np.concatenate(([reach], ends[:-1])))
            repeated = units["offset"] < reached
            for row in np.flatnonzero(repeated).tolist():
                reason = (
                    f"claimed by two records; that at {int(units['position'][row])} is left out"
                )
                self._note(key, int(units["offset"][row]), int(units["n"][row]), reason)
            units = units[~repeated]
            if len(units):
                writer.write(number, pack_units(units, True))
                number += len(units)
                reach = int((units["offset"] + units["n"])[-1])
        self.unit_count += number

    def index_tasks(self) -> list[IndexTask]:
        """Return one task for each index file, with entries in log order."""
        place = self._place
        per_file = place.geometry.index_entry_count_max - 1
        files = list(_divide(self._results, per_file))
        times = [first_key_ms(keys_path(place, n), first) for (n, first, _), *_ in files]
        directory = place.output / INDEX_DIRECTORY
        tasks = []
        before: Any = None
        for name, parts in zip(file_names(times), files, strict=True):
            paths = tuple((keys_path(place, n), first, count) for n, first, count in parts)
            tasks.append(IndexTask(directory / name, paths, before, place.geometry))
            path, first, count = paths[-1]
            before = path, first + count - 1
        return tasks

    @property
    def holes(self) -> list[DamagedRange]:
        """The damaged parts of the log, in order."""
        return self._holes


def _may_follow(before: UnitRun, run: UnitRun) -> bool:
    """Return whether the log has room for the messages between the two runs."""
    missing = run.first - before.behind
    return missing <= 0 or missing * RECORD_SIZE_BYTES_MIN <= run.start - before.end


def _divide(results: list[PieceResult], per_file: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield the parts of each file of *per_file* entries: task number, first entry, entry count."""
    parts: list[tuple[int, int, int]] = []
    room = per_file
    for result in results:
        first = 0
        while first < result.key_count:
            count = min(room, result.key_count - first)
            parts.append((result.number, first, count))
            first, room = first + count, room - count
            if not room:
                yield parts
                parts, room = [], per_file
    if parts:
        yield parts
