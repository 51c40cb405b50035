"""Whatever is done to a consume queue, it holds the messages of the log and nothing else."""

import random
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

UNITS_PER_FILE = 4
FILE_SIZE = UNITS_PER_FILE * 20
COUNTS = st.integers(1, 2 * UNITS_PER_FILE + 1)
# Files are cut into pieces of this size, of which any may be lost when the power is cut.
SECTOR = 32


class QueueAgainstModel(RuleBasedStateMachine):
    """The model is the list of (queue offset, commit log offset, size) that the log holds."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "T" / "0"
        self.queue = ConsumeQueue(self.path, "T", 0, FILE_SIZE)
        self.messages: list[tuple[int, int, int]] = []
        self.next_offset = 0
        self.log_end = 0

    @initialize(first_offset=st.integers(0, 3 * UNITS_PER_FILE))
    def start_at(self, first_offset: int) -> None:
        self.next_offset = first_offset

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=2 * UNITS_PER_FILE))
    def append_messages(self, gaps: list[int]) -> None:
        for gap in gaps:
            position, size = self.log_end + gap * 100, 50 + gap
            self.queue.append(self.next_offset, position, size, gap)
            self.messages.append((self.next_offset, position, size))
            self.next_offset += 1
            self.log_end = position + size

    @rule(count=COUNTS)
    def append_many(self, count: int) -> None:
        units = b""
        first = self.next_offset
        for _ in range(count):
            units += CONSUME_QUEUE_UNIT.pack(self.log_end, 70, 0)
            self.messages.append((self.next_offset, self.log_end, 70))
            self.next_offset += 1
            self.log_end += 70
        self.queue.append_many(first, units, count, self.log_end)

    @rule(number=st.integers(0, 1000))
    @precondition(lambda self: self.messages)
    def note_again(self, number: int) -> None:
        offset, position, size = self.messages[number % len(self.messages)]
        entry = self.queue.entry(offset)
        assert entry is not None
        self.queue.append(offset, position, size, entry[2])

    @rule()
    def flush(self) -> None:
        self.queue.flush()

    @rule()
    def be_idle(self) -> None:
        self.queue.release_if_idle()

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        self.queue.close()
        minimum = self.messages[0][1] if self.messages else self.log_end
        self.queue = ConsumeQueue(self.path, "T", 0, FILE_SIZE)
        self.queue.load()
        self.queue.recover(self.log_end, self.log_end if is_clean else 0)
        self.queue.correct_min_offset(minimum)

    @rule(number=st.integers(0, 1000))
    @precondition(lambda self: self.messages)
    def cut_the_log(self, number: int) -> None:
        keep = number % (len(self.messages) + 1)
        if keep == len(self.messages):
            return
        cut = self.messages[keep:]
        del self.messages[keep:]
        self.log_end = cut[0][1]
        self.next_offset = cut[0][0]
        self.queue.truncate_to_commit_log(self.log_end)

    @rule(number=st.integers(0, 1000))
    @precondition(lambda self: self.messages)
    def expire(self, number: int) -> None:
        keep_from = number % (len(self.messages) + 1)
        minimum = self.messages[keep_from][1] if keep_from < len(self.messages) else self.log_end
        del self.messages[:keep_from]
        self.queue.delete_expired(minimum)

    @invariant()
    def holds_the_messages(self) -> None:
        queue = self.queue
        if not self.messages:
            assert queue.min_offset == queue.max_offset
            assert queue.read_units(queue.min_offset, 1) == b""
            return
        first, last = self.messages[0], self.messages[-1]
        assert (queue.min_offset, queue.max_offset) == (first[0], last[0] + 1)
        assert queue.commit_log_end == last[1] + last[2]
        units = queue.read_units(first[0], len(self.messages) + 5)
        held = [(unit[0], unit[1]) for unit in CONSUME_QUEUE_UNIT.iter_unpack(units)]
        assert held == [(position, size) for _, position, size in self.messages]

    @invariant()
    def has_no_file_without_a_unit(self) -> None:
        if self.path.exists():
            for file in self.path.iterdir():
                assert any(file.read_bytes())

    def teardown(self) -> None:
        self.queue.close()
        self.directory.cleanup()


QueueAgainstModel.TestCase.settings = settings(stateful_step_count=25)
TestQueueAgainstModel = QueueAgainstModel.TestCase


@given(
    first=st.integers(0, 6),
    flushed=st.integers(0, 14),
    unflushed=st.integers(0, 14),
    seed=st.integers(0, 2**32),
)
def test_power_cut_costs_nothing_that_the_log_cannot_put_back(
    first: int, flushed: int, unflushed: int, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "T" / "0"
        queue = ConsumeQueue(path, "T", 0, FILE_SIZE)
        end = first + flushed + unflushed
        for number in range(first, first + flushed):
            queue.append(number, number * 100, 50, 1)
        durable = {file.name: file.read_bytes() for file in path.glob("*")}
        for number in range(first + flushed, end):
            queue.append(number, number * 100, 50, 1)
        queue.close()
        lose_some_sectors(path, durable, random.Random(seed))

        again = ConsumeQueue(path, "T", 0, FILE_SIZE)
        again.load()
        again.recover(end * 100)
        assert again.max_offset >= first + flushed or not flushed
        # Recovery replays what may not have been on disk; a unit torn in two is repaired by that.
        for number in range(min(again.max_offset, first + flushed) if flushed else first, end):
            again.append(number, number * 100, 50, 1)
        assert (again.min_offset, again.max_offset) == ((first, end) if end > first else (0, 0))
        for number in range(first, end):
            assert again.entry(number) == (number * 100, 50, 1)
        again.close()


def lose_some_sectors(path: Path, durable: dict[str, bytes], draw: random.Random) -> None:
    """Put the old bytes (zeros, in a new file) in the place of any of the sectors."""
    for file in path.glob("*"):
        content = bytearray(file.read_bytes())
        old = durable.get(file.name, bytes(len(content)))
        for start in range(0, len(content), SECTOR):
            if draw.random() < 0.5:
                content[start : start + SECTOR] = old[start : start + SECTOR]
        file.write_bytes(content)
