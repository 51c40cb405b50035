"""How far damage in the commit log reaches, so that no message body is read as records.

A body may hold images of records, even with the very log offsets at which the images are. If the
head in front of such a body is damaged, the images look like the records after the damage. These
facts tell them apart:

- the size of the damaged record, from the queue entry that points at it or from the rest of its
  head, which states it twice: whole, and by the sizes of its parts;
- the queue entry that an image claims, if it points elsewhere;
- the bytes after the image: a real record is followed by records.

One case passes all checks: an image made so that it leads exactly to the end of the record that
holds it, if that record's head and every queue entry are lost. Nothing on disk tells it apart.
"""

import mmap

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import Record, is_blank, is_zero, read_record
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.recovering.lookups import find_unit, record_at
from rockhopper.protocol.store.record_head import (
    BORN_TIME_AT,
    MAGIC_AT,
    MAGIC_START,
    RECORD_SIZE_BYTES_MIN,
    SYS_FLAG_AT,
    body_start,
)

# A search through all queues is expensive; in a badly damaged log it must not dominate.
_QUEUES_SEARCHED_MAX = 200_000
# No message is larger (maxMessageSize and its properties).
_BODY_BYTES_MAX = 17 << 20
_PAGE_BYTES = 512


class QueueWitnesses:
    """The evidence that consume queues give about the records of a log."""

    def __init__(self, queues: ConsumeQueueTable, log_files: MappedFileQueue) -> None:
        self._queues = queues
        self._log_files = log_files
        self._searches_left = _QUEUES_SEARCHED_MAX

    def end_of(self, offset: int) -> int | None:
        """Return where the record at *offset* ends, by the entry that points at it; or None."""
        for queue in self._queues:
            if queue.commit_log_end <= offset or self._searches_left <= 0:
                continue
            self._searches_left -= 1
            found = find_unit(queue, offset)
            if found is not None and found[1][0] == offset:
                return sum(found[1])
        return None

    def opinion(self, record: Record) -> bool | None:
        """Return whether the entry that *record* claims confirms it; None without such evidence."""
        topic = record.topic.decode(errors="replace")
        queue = self._queues.get(topic, record.queue_id)
        unit = None if queue is None else queue.noted(record.queue_offset)
        if unit is None:
            return None
        if unit[:2] == (record.offset, record.size_bytes):
            return True
        if unit[0] < record.offset < unit[0] + unit[1]:
            return False
        holder = record_at(self._log_files, unit[0])
        is_taken = holder is not None and (holder.topic, holder.queue_id, holder.queue_offset) == (
            record.topic,
            record.queue_id,
            record.queue_offset,
        )
        return False if is_taken else None


def leads_on(file: MappedFile, position: int) -> bool:
    """Return whether records follow from *position* to the end of file or log, or past any body.

    Damage on the way is skipped if it states its own size. A page that was never written counts as
    damage too, not as the rest of a body.
    """
    data = file.mapping
    far = position + _BODY_BYTES_MAX
    while position < min(far, file.size_bytes):
        record = read_record(data, position, file.base_offset)
        if record is not None:
            position += record.size_bytes
        elif is_blank(data, position) or _is_zero_to_page_end(data, position):
            break
        elif (behind := stated_end(file, position)) is not None:
            position = behind
        else:
            return False
    return True


def _is_zero_to_page_end(data: mmap.mmap, position: int) -> bool:
    page_end = (position // _PAGE_BYTES + 1) * _PAGE_BYTES
    return is_zero(data, position) and not data[position:page_end].strip(b"\0")


def stated_end(file: MappedFile, position: int) -> int | None:
    """Return where a damaged record at *position* ends, by the rest of its head, or None."""
    data = file.mapping
    whole, parts = _end_by_size(data, position), _end_by_parts(data, position)
    if whole is not None and whole == parts:
        return whole
    ends = [end for end in (whole, parts) if end is not None]
    followed = [end for end in ends if read_record(data, end, file.base_offset) is not None]
    if followed:
        return max(followed)
    # Zeros are common: a size that leads to zeros only counts if the rest looks like a head.
    if data[position + MAGIC_AT : position + MAGIC_AT + 3] != MAGIC_START:
        return None
    closed = [end for end in ends if is_blank(data, end) or _is_zero_to_page_end(data, end)]
    return max(closed, default=None)


def _end_by_size(data: mmap.mmap, position: int) -> int | None:
    size = int.from_bytes(data[position : position + MAGIC_AT], "big")
    return position + size if RECORD_SIZE_BYTES_MIN <= size <= len(data) - position else None


def _end_by_parts(data: mmap.mmap, position: int) -> int | None:
    sys_flag = int.from_bytes(data[position + SYS_FLAG_AT : position + BORN_TIME_AT], "big")
    at = position + body_start(sys_flag)
    at += int.from_bytes(data[at - 4 : at], "big")
    if at + 3 > len(data):
        return None
    at += 1 + data[at]
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    return end if end <= len(data) else None
