"""Logs that replicas leave are read as they stand, and differences between them are found."""

from pathlib import Path

import pytest

from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_PREPARED
from tests.chaos.replicas.logs import ReadLog, differences, queue_problems, read_log
from tests.support.records import encode_message

FILE_SIZE = 512


class Store:
    """The files of one replica, with records as they come."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.end = 0
        self._files: dict[int, bytearray] = {}
        (root / "commitlog").mkdir(parents=True)

    def add(self, body: bytes, queue_offset: int, **fields: int) -> int:
        """Append a record of queue 0; where it stands."""
        record = self._record(body, queue_offset, fields)
        if self.end % FILE_SIZE + len(record) + BLANK_RECORD.size > FILE_SIZE:
            left = FILE_SIZE - self.end % FILE_SIZE
            self._write(BLANK_RECORD.pack(left, MAGIC_BLANK))
            self.end += left
            record = self._record(body, queue_offset, fields)
        self._write(record)
        self.end += len(record)
        return self.end - len(record)

    def _record(self, body: bytes, queue_offset: int, fields: dict[str, int]) -> bytes:
        return encode_message(
            topic="plain",
            body=body,
            queue_offset=queue_offset,
            commit_log_offset=self.end,
            **fields,  # type: ignore[arg-type]
        )

    def _write(self, data: bytes) -> None:
        base = self.end - self.end % FILE_SIZE
        file = self._files.setdefault(base, bytearray(FILE_SIZE))
        file[self.end - base : self.end - base + len(data)] = data
        (self.root / "commitlog" / f"{base:020d}").write_bytes(file)

    def enqueue(self, *units: tuple[int, int]) -> None:
        """Write queue 0: log offset and size of each unit."""
        directory = self.root / "consumequeue" / "plain" / "0"
        directory.mkdir(parents=True, exist_ok=True)
        packed = b"".join(CONSUME_QUEUE_UNIT.pack(offset, size, 0) for offset, size in units)
        (directory / f"{0:020d}").write_bytes(packed + bytes(40))

    def read(self, replica: int = 1, until: int | None = None) -> ReadLog:
        """What is there."""
        return read_log(replica, self.root, self.end if until is None else until)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "one")


def test_records_are_read_over_the_end_of_a_file(store: Store) -> None:
    places = [store.add(b"m%d" % number * 50, number) for number in range(6)]
    found = store.read()
    assert found.problems == []
    assert [found.places["plain", 0, number] for number in range(6)] == places
    assert found.end_offset == store.end > FILE_SIZE
    assert ("plain", b"m5" * 50) in found.bodies


def test_half_messages_are_in_no_queue(store: Store) -> None:
    store.add(b"half", 0, sys_flag=SYS_FLAG_TRANSACTION_PREPARED)
    store.add(b"whole", 0)
    found = store.read()
    assert (found.problems, len(found.places), len(found.pieces)) == ([], 1, 2)


def test_two_records_at_one_place_are_a_problem(store: Store) -> None:
    store.add(b"one", 0)
    store.add(b"two", 0)
    assert len(store.read().problems) == 1


def test_a_log_that_ends_too_early_is_a_problem(store: Store) -> None:
    store.add(b"one", 0)
    assert len(store.read(until=store.end + 1).problems) >= 1
    assert Store(store.root.parent / "two").read().problems == ["replica 1 has no commit log"]


def test_damage_is_a_problem(store: Store) -> None:
    store.add(b"one", 0)
    (path,) = (store.root / "commitlog").iterdir()
    path.write_bytes(path.read_bytes().replace(b"one", b"two"))
    assert "no record at 0" in store.read().problems[0]


def test_logs_differ_where_their_bytes_do(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    for each in (store, other):
        each.add(b"same", 0)
    assert list(differences([store.read(), other.read(2)])) == []
    at = store.add(b"mine", 1)
    other.add(b"his!", 1)
    (difference,) = differences([store.read(), other.read(2)])
    assert difference.startswith(f"at {at:,} replica 1 has ")
    assert list(differences([store.read(until=at), other.read(2, until=at)])) == []


def test_queues_say_what_the_log_says(store: Store) -> None:
    first, second = store.add(b"one", 0), store.add(b"two", 1)
    log = store.read()
    store.enqueue((first, second - first), (second, store.end - second))
    assert list(queue_problems(log, store.root)) == []
    store.enqueue((first, second - first))
    assert ["missing" in each for each in queue_problems(log, store.root)] == [True]
    store.enqueue((first, second - first), (first, second - first))
    assert ["wrong" in each for each in queue_problems(log, store.root)] == [True]
    # Behind what is confirmed a queue may say what it likes.
    store.enqueue((first, second - first), (second, store.end - second), (store.end, 9))
    assert list(queue_problems(log, store.root)) == []
