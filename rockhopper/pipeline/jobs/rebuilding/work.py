"""The work of a task of a rebuild.

In a plain queue, the queue offset determines the place of a unit, so every task writes its units
directly. Batch queues and the index are in log order. So tasks write these entries to scratch
files, and a later step computes their places from the counts of all tasks.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.pipeline.derived.entries import KEY, UNIT, Entries, QueueKey, impossible_rows
from rockhopper.pipeline.derived.geometry import Geometry
from rockhopper.pipeline.derived.index_files import write_index_file
from rockhopper.pipeline.derived.queue_files import QueueWriter, pack_units
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.scan import DamagedRange, scan


@dataclass(frozen=True, slots=True)
class Worksite:
    """The output directories and sizes of a rebuild."""

    output: Path
    scratch: Path
    geometry: Geometry
    rules: DispatchRules


@dataclass(frozen=True, slots=True)
class PieceTask:
    """The pieces of the log for one task."""

    number: int
    pieces: tuple[FilePiece, ...]
    place: Worksite
    only: frozenset[QueueKey] | None = None
    """If set: write only these plain queues."""


@dataclass(frozen=True, slots=True)
class UnitRun:
    """Units of one queue with consecutive offsets."""

    first: int
    behind: int
    start: int
    """The commit log offset of the first record."""
    last: int
    """The commit log offset of the last record."""
    end: int
    """The end of the last record."""


@dataclass(slots=True)
class PieceResult:
    """The result of a task."""

    number: int
    record_count: int = 0
    size_bytes: int = 0
    undispatched_count: int = 0
    runs: dict[QueueKey, list[UnitRun]] = field(default_factory=dict)
    batches: dict[QueueKey, int] = field(default_factory=dict)
    """The number of units of each batch queue in the scratch file."""
    key_count: int = 0
    damages: list[DamagedRange] = field(default_factory=list)
    refused: list[tuple[QueueKey, int, int]] = field(default_factory=list)
    """Queue, queue offset and commit log offset of records with an impossible queue offset."""


def rebuild_pieces(task: PieceTask) -> PieceResult:
    """Write the units of plain queues; write the other entries to scratch files."""
    place = task.place
    result = PieceResult(task.number)
    entries = Entries(place.rules, with_keys=task.only is None)
    for piece in task.pieces:
        try:
            for found in scan(piece):
                if isinstance(found, DamagedRange):
                    result.damages.append(found)
                    continue
                entries.append_records(found)
                result.size_bytes += int((found.ends - found.offsets).sum())
        except FileNotFoundError:
            continue  # It has expired, like its units.
    result.record_count = entries.record_count
    result.undispatched_count = entries.undispatched_count
    asides: dict[QueueKey, npt.NDArray[Any]] = {}
    for key, units in entries.queues().items():
        if task.only is not None and key not in task.only:
            continue
        if key.is_batch:
            asides[key] = units
            result.batches[key] = len(units)
        else:
            result.runs[key] = _write_units(place, key, units, result)
    if task.only is None:
        keys = entries.keys()
        result.key_count = len(keys)
        _put_aside(keys_path(place, task.number), [keys])
        _put_aside(batches_path(place, task.number), list(asides.values()))
    return result


def _put_aside(path: Path, parts: list[npt.NDArray[Any]]) -> None:
    """Write a file atomically: a task may run twice, and the slower run must not damage it."""
    made = path.with_name(f"{path.name}-{uuid4().hex}")
    with open(made, "wb") as file:
        for part in parts:
            part.tofile(file)
    os.replace(made, path)


def keys_path(place: Worksite, number: int) -> Path:
    """Return the scratch file of a task for index entries."""
    return place.scratch / f"keys-{number}"


def batches_path(place: Worksite, number: int) -> Path:
    """Return the scratch file of a task for the units of batch queues, in order of queues."""
    return place.scratch / f"batches-{number}"


def _write_units(
    place: Worksite, key: QueueKey, units: npt.NDArray[Any], result: PieceResult
) -> list[UnitRun]:
    writer = QueueWriter(place.output, key, place.geometry.queue_file_size(key))
    units = _drop_impossible(key, units, result)
    edges = np.flatnonzero(np.diff(units["offset"]) != 1) + 1
    runs = []
    for part in np.split(units, edges):
        writer.write(int(part["offset"][0]), pack_units(part, False))
        first, last = part[0], part[-1]
        runs.append(
            UnitRun(
                int(first["offset"]),
                int(last["offset"]) + 1,
                int(first["position"]),
                int(last["position"]),
                int(last["position"]) + int(last["size"]),
            )
        )
    return runs


def _drop_impossible(
    key: QueueKey, units: npt.NDArray[Any], result: PieceResult
) -> npt.NDArray[Any]:
    rows = impossible_rows(units)
    for row in rows:
        refused = int(units["offset"][row]), int(units["position"][row])
        result.refused.append((key, *refused))
    return np.delete(units, rows) if rows else units


@dataclass(frozen=True, slots=True)
class IndexTask:
    """The path of one index file, and the scratch file parts with its entries."""

    path: Path
    parts: tuple[tuple[Path, int, int], ...]
    """File, first entry, entry count."""
    before: tuple[Path, int] | None
    """The place of the last entry of the previous file."""
    geometry: Geometry


def build_index_file(task: IndexTask) -> int:
    """Build the file; return the number of its entries."""
    keys = np.concatenate([_name_aside(*part) for part in task.parts])
    previous_end_ms = 0
    if task.before is not None:
        path, number = task.before
        previous_end_ms = int(_name_aside(path, number, 1)["ms"][0])
    write_index_file(
        task.path,
        keys["hash"],
        keys["position"],
        keys["ms"],
        task.geometry.index_slot_count,
        task.geometry.index_entry_count_max,
        previous_end_ms,
    )
    return len(keys)


def first_key_ms(path: Path, number: int) -> int:
    """Return the store time of an entry in a scratch file."""
    return int(_name_aside(path, number, 1)["ms"][0])


def _name_aside(path: Path, first: int, count: int) -> npt.NDArray[Any]:
    return np.fromfile(path, KEY, count, offset=first * KEY.itemsize)


def batch_units(place: Worksite, result: PieceResult, key: QueueKey) -> npt.NDArray[Any]:
    """Return the units of a batch queue from a task's scratch file."""
    before = 0
    for other, count in result.batches.items():
        if other == key:
            path = batches_path(place, result.number)
            return np.fromfile(path, UNIT, count, offset=before * UNIT.itemsize)
        before += count
    return np.empty(0, UNIT)
