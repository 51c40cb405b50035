"""Look up records and units by commit log offset, for recovery."""

from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import Record, read_record
from rockhopper.broker.store.queues.unit_queue import UnitQueue


def record_at(log_files: MappedFileQueue, offset: int) -> Record | None:
    """Return the whole and undamaged record at *offset* of the commit log, or None."""
    file = log_files.file_at(offset) if offset >= 0 else None
    if file is None:
        return None
    return read_record(file.mapping, offset - file.base_offset, file.base_offset)


def record_start(log_files: MappedFileQueue, offset: int) -> int:
    """Return *offset* if a whole record starts there, else the start of its file or of the log."""
    if record_at(log_files, offset) is not None:
        return offset
    file = log_files.file_at(offset)
    return log_files.min_offset if file is None else file.base_offset


def queue_end(queue: UnitQueue | None) -> int:
    """Return where the record of the last message ends, −1 without one."""
    return -1 if queue is None else queue.commit_log_end


def find_unit(queue: UnitQueue, commit_log_offset: int) -> tuple[int, tuple[int, int]] | None:
    """Return queue offset, log offset and size of the first unit not before *commit_log_offset*."""
    low, high = queue.min_offset, queue.max_offset
    found = None
    while low < high:
        middle = (low + high) // 2
        unit = queue.entry(middle)
        if unit is None:
            return None
        if unit[0] >= commit_log_offset:
            high = middle
            found = middle, (unit[0], unit[1])
        else:
            low = middle + 1
    return found
