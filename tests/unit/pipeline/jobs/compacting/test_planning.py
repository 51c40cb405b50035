"""Which files are merged: neighbours that are small, and never across older messages."""

from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, QueueSummary
from rockhopper.pipeline.jobs.body_hash import CRC_BITS
from rockhopper.pipeline.jobs.compacting.planning import BODY_BYTES_MAX, groups


def file(run: int, date: str = "d1", size: int = 10, **more: int) -> ArchivedFile:
    """A file of a run, with offsets of queue 0 from *first* on."""
    first = more.get("first", run * 10)
    bits, queue_id = more.get("bits", CRC_BITS), more.get("queue", 0)
    body_bytes = more.get("body", 1)
    queue = QueueSummary("t", "b", queue_id, first, first + 9, 10, body_bytes, 0, 0, 0, bits)
    path = f"topic=t/date={date}/part-{run:05d}-00000-0.parquet"
    return ArchivedFile(path, "t", date, 10, size, 0, 0, (queue,))


def runs(*files: ArchivedFile, target: int = 100) -> list[list[int]]:
    found = groups(files, target)
    return [[int(each.path.split("part-")[1][:5]) for each in group] for group in found]


def test_small_files_of_a_day_come_together() -> None:
    assert runs(file(2), file(1), file(3), file(4, "d2"), file(5, "d2")) == [[1, 2, 3], [4, 5]]
    assert groups([file(1), file(2)], 100, ["other"]) == []


def test_a_group_is_no_larger_than_a_file_is_to_be() -> None:
    assert runs(*(file(run, size=40) for run in range(5))) == [[0, 1], [2, 3]]
    assert runs(file(1, size=50), file(2, size=49), file(3)) == [[2, 3]]
    half = BODY_BYTES_MAX // 2 + 1
    assert runs(file(1, body=half), file(2, body=half), file(3)) == [[2, 3]]


def test_no_message_comes_before_an_older_one_of_its_queue() -> None:
    large = file(2, size=90)
    assert runs(file(1), large, file(3), file(4)) == [[3, 4]]
    assert runs(file(1), file(2, size=90, queue=1), file(3)) == [[1, 3]]
    # The clock was set back: what is of the later day by its time is older.
    assert runs(file(1), file(2, "d2"), file(3)) == []
    assert runs(file(1), file(2, "d2", first=90), file(3)) == [[1, 3]]


def test_files_of_former_days_are_left_alone() -> None:
    assert runs(file(1, bits=32), file(2, bits=32), file(3), file(4)) == [[3, 4]]
