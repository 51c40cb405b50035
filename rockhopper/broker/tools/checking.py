"""``store check``: check that a store is consistent.

The comparisons, by kind of damage::

    record   every record of the log: place, sizes, CRC of the body
    queue    each record's units, and each unit's record (queue_checking.py)
    index    keys against entries, links, slots, headers (index_checking.py)
    table    tables, notes and checkpoints against their checksums (table_checking.py)
    file     files that are missing, or have a wrong size or name
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rockhopper.broker.store.recovering.opening_checks import list_rocksdb_data
from rockhopper.broker.tools.findings import REPAIR, RESTORE_FILE, Findings
from rockhopper.broker.tools.index_checking import IndexCheck
from rockhopper.broker.tools.queue_checking import QueueCheck
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.broker.tools.table_checking import check_tables
from rockhopper.protocol.store.walking import Found


@dataclass
class Checked:
    """The amounts that were checked, and the time it took."""

    log_start: int
    log_end: int
    record_count: int
    unit_count: int
    entry_count: int
    key_count: int
    table_count: int
    took_s: float

    @property
    def megabytes_per_s(self) -> float:
        """The speed in megabytes of log per second."""
        return (self.log_end - self.log_start) / 1e6 / max(self.took_s, 1e-9)


def check(view: StoreView, findings: Findings, progress: Callable[[int], None]) -> Checked:
    """Check the whole store; *progress* receives the current log offset. Raises OSError."""
    began = time.monotonic()
    for problem in view.problems:
        findings.report("file", problem.path, problem.reason, RESTORE_FILE)
    for directory, what, way_out in list_rocksdb_data(view.layout):
        told = f"RocketMQ keeps {what} of this store in RocksDB, which this tool cannot read"
        findings.report("file", directory, told, way_out)
    queues, index = QueueCheck(view, findings), IndexCheck(view, findings)
    log_start = view.log.min_offset
    count = 0

    def take(found: Found) -> bool:
        nonlocal count
        _, record_count, _, runs, keys = found
        count += record_count
        queues.take_runs(runs)
        index.take_keys(keys)
        progress(max(run[6] for run in runs))
        return True

    for record, is_damaged in view.records(take=take):
        count += 1
        if is_damaged:
            continue
        queues.take_record(record)
        index.take_record(record)
        if not count % 1000:
            progress(record.end_offset)
    _name_holes(view, findings)
    queues.finish()
    index.finish()
    table_count = check_tables(view, findings)
    progress(view.end)
    return Checked(
        log_start,
        view.end,
        count,
        queues.unit_count,
        index.entry_count,
        index.key_count,
        table_count,
        time.monotonic() - began,
    )


def _name_holes(view: StoreView, findings: Findings) -> None:
    for hole in view.holes:
        file = view.log.file_at(hole.start)
        place = {"log_offset": hole.start, "size": hole.end - hole.start}
        path = view.layout.commit_log if file is None else file.path
        if file is not None:
            place["file_position"] = hole.start - file.base_offset
        findings.report("record", path, hole.reason, REPAIR, **place)
