"""A new queue whose file is made later loses no unit, whatever happens in between."""

import itertools
import tempfile
import threading
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from structlog.testing import capture_logs

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.mapped_file import DRAFT_BYTES, Mappings
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

LOG_END = 1 << 40
FILE_SIZE = 2000


class DraftAgainstModel(RuleBasedStateMachine):
    """The model is the number of messages; message n is at 100·n of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "T" / "0"
        self.mappings = Mappings()
        self.mappings.drafts_max = 1
        self.queue = ConsumeQueue(self.path, "T", 0, FILE_SIZE, mappings=self.mappings)
        self.count = 0
        self.flushed = 0

    @rule(count=st.sampled_from([1, 2, 60]))
    def append(self, count: int) -> None:
        units = b"".join(self.unit(self.count + n) for n in range(count))
        self.queue.append_many(self.count, units, count, 100 * (self.count + count))
        self.count += count

    @staticmethod
    def unit(number: int) -> bytes:
        return CONSUME_QUEUE_UNIT.pack(100 * number, 100, 0)

    @rule(thorough=st.booleans())
    def flush(self, thorough: bool) -> None:
        is_flushed = self.queue.flush(0 if thorough else 2)
        if thorough:
            assert is_flushed == (self.flushed < self.count)
            self.flushed = self.count
        assert self.path.exists() == (self.count > 0)
        on_disk = b"".join(path.read_bytes() for path in sorted(self.path.glob("0*")))
        expected = b"".join(self.unit(number) for number in range(self.flushed))
        assert on_disk.startswith(expected)

    @rule()
    def be_idle(self) -> None:
        self.queue.release_if_idle()

    @rule(number=st.integers(0, 1000))
    def find_mapping(self, number: int) -> None:
        found = self.queue.find_mapping(number % self.count) if self.count else None
        assert (found is None) == (self.count == 0)

    @rule(number=st.integers(0, 1000))
    def repair(self, number: int) -> None:
        if self.count:
            at = number % self.count
            self.queue.repair(at, (100 * at, 100, 0))
            self.flushed = min(self.flushed, at)

    @rule(number=st.integers(0, 1000))
    def cut(self, number: int) -> None:
        keep = number % (self.count + 1)
        if keep:
            self.queue.truncate_to(keep)
            self.count = keep
            self.flushed = min(self.flushed, keep)

    @rule()
    def reopen(self) -> None:
        self.queue.flush()
        self.queue.close()
        self.queue = ConsumeQueue(self.path, "T", 0, FILE_SIZE, mappings=self.mappings)
        self.queue.load()
        self.queue.recover(LOG_END, LOG_END)
        self.flushed = self.count

    @invariant()
    def holds_all(self) -> None:
        assert self.queue.max_offset == self.count
        units = b"".join(self.queue.read_units(n, 50) for n in range(0, self.count, 50))
        assert units == b"".join(self.unit(number) for number in range(self.count))
        assert isinstance(self.queue.read_units(0, 1), bytes)

    def teardown(self) -> None:
        self.queue.close()
        self.directory.cleanup()


TestDraft = DraftAgainstModel.TestCase


@given(st.integers(0, 120))
def test_a_queue_may_begin_at_any_offset(first: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        mappings = Mappings()
        mappings.drafts_max = 1
        queue = ConsumeQueue(Path(name) / "0", "T", 0, FILE_SIZE, mappings=mappings)
        for number in range(first, first + 3):
            queue.append(number, 100 * number, 100, 0)
        queue.flush()
        queue.append(first + 3, 100 * (first + 3), 100, 0)
        queue.flush()
        assert not mappings.drafts
        queue.close()
        again = ConsumeQueue(Path(name) / "0", "T", 0, FILE_SIZE)
        again.load()
        again.recover(LOG_END)
        assert (again.min_offset, again.max_offset) == (first, first + 4)
        again.close()


def test_only_so_many_files_wait(tmp_path: Path) -> None:
    mappings = Mappings()
    mappings.drafts_max = 2
    table = ConsumeQueueTable(StoreLayout(tmp_path), FILE_SIZE, 46 * 50, mappings)
    for number in range(3):
        table.get_or_create("T", number).append(0, 100 * number, 100, 0)
    table.get_or_create("B", 0, batch=True).append(0, 900, 100, 0, 3)
    root = tmp_path / "consumequeue" / "T"
    assert [path.name for path in root.iterdir()] == ["2"]
    for _ in table.flush_steps(thorough=False):
        pass
    assert sorted(path.name for path in root.iterdir()) == ["0", "1", "2"]
    assert not mappings.drafts
    table.get_or_create("B", 1, batch=True).append(0, 1000, 100, 0, 3)
    assert not (tmp_path / "batchconsumequeue" / "B" / "1").exists()
    table.flush_all()
    again = ConsumeQueueTable(StoreLayout(tmp_path), FILE_SIZE, 46 * 50)
    again.load()
    for queue in again:
        queue.recover(LOG_END)
    assert {(q.topic, q.queue_id): q.max_offset for q in again} == {
        ("T", 0): 1,
        ("T", 1): 1,
        ("T", 2): 1,
        ("B", 0): 3,
        ("B", 1): 3,
    }
    table.close()
    again.close()


def test_a_topic_that_is_deleted_before_its_file_is_made_gets_none(tmp_path: Path) -> None:
    mappings = Mappings()
    mappings.drafts_max = 2
    table = ConsumeQueueTable(StoreLayout(tmp_path), FILE_SIZE, 46 * 50, mappings)
    old = table.get_or_create("T", 0)
    old.append(0, 0, 100, 0)
    deleted = table.delete_topic("T")
    assert not mappings.drafts
    deleted.remove()
    for _ in table.flush_steps(thorough=True):
        pass
    assert not list(tmp_path.rglob("0*"))
    table.get_or_create("T", 0).append(0, 100, 100, 0)
    for _ in table.flush_steps(thorough=True):
        pass
    assert [path.stat().st_size for path in tmp_path.rglob("0000*")] == [FILE_SIZE]
    table.close()


def test_a_queue_that_is_emptied_before_its_file_is_made_waits_for_nothing(tmp_path: Path) -> None:
    for number in range(2):
        mappings = Mappings()
        mappings.drafts_max = 1
        queue = ConsumeQueue(tmp_path / str(number), "T", 0, FILE_SIZE, mappings=mappings)
        queue.append(0, 0, 100, 0)
        if number:
            queue.destroy()
        else:
            queue.truncate_to_commit_log(0)
        assert not mappings.drafts
        assert not queue.flush()
        assert not (tmp_path / str(number)).exists()


def test_without_space_the_units_wait_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mappings = Mappings()
    mappings.drafts_max = 2
    table = ConsumeQueueTable(StoreLayout(tmp_path), FILE_SIZE, 46 * 50, mappings)
    queue = table.get_or_create("T", 0)
    queue.append(0, 0, 100, 0)
    tmp_path.chmod(0o755)
    (tmp_path / "consumequeue").write_text("in the way of the directory")
    table.get_or_create("T", 1).append(0, 0, 100, 0)
    with capture_logs() as logged:
        for _ in range(2):
            for _ in table.flush_steps(thorough=True):
                pass
            assert isinstance(table.unmade_error, OSError)
            assert table.dirty_count == 2
    assert len(logged) == 1
    assert queue.entry(0) == (0, 100, 0)
    queue.append(1, 100, 100, 0)
    with pytest.raises(OSError, match="consumequeue"):
        table.flush_all()
    (tmp_path / "consumequeue").unlink()
    for _ in table.flush_steps(thorough=True):
        pass
    assert (table.unmade_error, table.dirty_count) == (None, 0)
    data = (tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)).read_bytes()
    assert data[:DRAFT_BYTES].rstrip(b"\0")[-12:] != b""
    assert queue.max_offset == 2
    table.close()


def test_a_thread_that_flushes_loses_nothing_of_what_another_appends(tmp_path: Path) -> None:
    mappings = Mappings()
    mappings.drafts_max = 8
    table = ConsumeQueueTable(StoreLayout(tmp_path), FILE_SIZE, 46 * 50, mappings)
    queue_count, message_count = 40, 90
    is_done = threading.Event()
    failures: list[BaseException] = []

    def flush() -> None:
        try:
            for number in itertools.count():
                for _ in table.flush_steps(thorough=number % 2 == 0):
                    pass
                if is_done.is_set():
                    return
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    for number in range(message_count):
        for queue_id in range(queue_count):
            at = 100 * (number * queue_count + queue_id)
            table.get_or_create("T", queue_id).append(number, at, 100, 0)
    is_done.set()
    thread.join()
    table.flush_all()
    table.close()
    assert failures == []
    again = ConsumeQueueTable(StoreLayout(tmp_path), FILE_SIZE, 46 * 50)
    again.load()
    for queue in again:
        queue.recover(LOG_END)
        found = [queue.entry(number) for number in range(message_count)]
        places = [100 * (number * queue_count + queue.queue_id) for number in range(message_count)]
        assert [unit[0] for unit in found if unit is not None] == places
    assert len(list(again)) == queue_count
    again.close()


@pytest.mark.parametrize("use", ["find", "repair", "cut", "find after flush"])
def test_units_after_another_use_of_the_file_are_in_the_file(tmp_path: Path, use: str) -> None:
    mappings = Mappings()
    mappings.drafts_max = 1
    queue = ConsumeQueue(tmp_path / "0", "T", 0, FILE_SIZE, mappings=mappings)
    for number in range(2):
        queue.append(number, 100 * number, 100, 0)
    if use == "find after flush":
        queue.flush(2)
    if use == "cut":
        queue.truncate_to(1)
    elif use == "repair":
        queue.repair(0, (0, 100, 0))
    else:
        queue.find_mapping(0)
    count = queue.max_offset
    queue.append(count, 100 * count, 100, 0)
    assert queue.flush()
    data = (tmp_path / "0" / ("0" * 20)).read_bytes()
    expected = b"".join(DraftAgainstModel.unit(number) for number in range(count + 1))
    assert data.rstrip(b"\0").ljust(len(expected), b"\0") == expected
    queue.close()


@pytest.mark.parametrize("file_size", [200, DRAFT_BYTES // 20 * 20])
def test_no_file_is_made_before_the_first(tmp_path: Path, file_size: int) -> None:
    mappings = Mappings()
    mappings.drafts_max = 1
    queue = ConsumeQueue(tmp_path / "0", "T", 0, file_size, mappings=mappings)
    count = file_size // 20 + 1
    for number in range(count):
        queue.append(number, 100 * number, 100, 0)
    killed = ConsumeQueue(tmp_path / "0", "T", 0, file_size)
    killed.load()
    killed.recover(LOG_END)
    assert (killed.min_offset, killed.max_offset) == (0, count)
    killed.close()
    queue.close()
