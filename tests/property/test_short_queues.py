"""Short queues are read at once, by compiled code and by Python, as they are read step by step."""

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.queues import unit_files, unit_queue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.protocol.store.queue_layout import BLANK_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT

SIZE_BYTES = 40_000
PAGE_UNITS = 4096 // 20
LOG_END = 1 << 20


def units(count: int, start: int = 0) -> bytes:
    return b"".join(CONSUME_QUEUE_UNIT.pack(100 * n, 100, n) for n in range(start, start + count))


CONTENTS = st.one_of(
    st.integers(0, PAGE_UNITS + 2).map(units),
    st.tuples(st.integers(0, 5), st.binary(max_size=50)).map(lambda two: units(two[0]) + two[1]),
    st.lists(st.sampled_from([units(2), units(1, 9), bytes(20), BLANK_CONSUME_QUEUE_UNIT])).map(
        b"".join
    ),
)
DAMAGE = st.tuples(
    st.one_of(st.integers(0, 200), st.integers(0, SIZE_BYTES - 1)), st.integers(0, 255)
)


def state(queue: ConsumeQueue) -> dict[str, Any]:
    """Return what others see of a queue, which gets another message at the end."""
    found = {
        "range": (queue.min_offset, queue.max_offset, queue.next_offset, queue.commit_log_end),
        "files": (queue.has_files, queue.first_position, queue.file_size_bytes, queue.is_dirty),
        "units": queue.read_units(queue.min_offset, 10_000),
        "flushed": queue.flush(),
    }
    queue.append(queue.next_offset, LOG_END, 100, 0)
    return found | {"flushed again": queue.flush(), "entry": queue.entry(queue.max_offset - 1)}


def recovered(directory: Path, log_end: int, trusted_below: int, *, at_once: bool) -> ConsumeQueue:
    queue = ConsumeQueue(directory, "T", 0, SIZE_BYTES)
    queue.load(log_end if at_once else -1)
    queue.recover(log_end, trusted_below)
    return queue


@given(
    CONTENTS,
    st.lists(DAMAGE, max_size=2),
    st.integers(1, LOG_END),
    st.booleans(),
    st.sampled_from(["", "stray", "00000000000000040000", "link"]),
)
@example(units(PAGE_UNITS), [], LOG_END, True, "")
@example(units(PAGE_UNITS - 1), [(4090, 1)], LOG_END, True, "")
@example(units(1), [(17_000, 1)], LOG_END, True, "")
@example(units(1), [(5_000, 1)], LOG_END, True, "")
@example(units(2), [], 199, False, "")
def test_a_queue_read_at_once_is_as_one_read_step_by_step(
    content: bytes, damages: list[tuple[int, int]], log_end: int, is_clean: bool, beside: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        data = bytearray(content.ljust(SIZE_BYTES, b"\0"))
        for position, value in damages:
            data[position] = value
        results = []
        for way in ("at once", "by steps"):
            directory = Path(name) / way
            directory.mkdir()
            path = directory / "00000000000000000000"
            with path.open("wb") as file:
                file.write(data[:4096])
                if any(data[4096:]):
                    file.write(data[4096:])
                file.truncate(SIZE_BYTES)
            if beside == "link":
                path.rename(Path(name) / f"elsewhere {way}")
                path.symlink_to(Path(name) / f"elsewhere {way}")
            elif beside:
                (directory / beside).write_bytes(bytes(SIZE_BYTES))
            if way == "at once":
                found = unit_files.read_short_queue_in_python(str(directory), log_end)
                if disk.COMPILED is not None:
                    assert disk.COMPILED.read_short_queue(str(directory), log_end) == found
            queue = recovered(
                directory, log_end, log_end if is_clean else 0, at_once=way == "at once"
            )
            text = repr(state(queue)).replace(str(directory), "")
            queue.close()
            results.append((text, path.read_bytes() if path.exists() else None))
        assert results[0] == results[1]


def test_a_queue_that_was_read_at_once_is_read_again_if_the_log_turns_out_shorter(
    tmp_path: Path,
) -> None:
    with (tmp_path / "00000000000000000000").open("wb") as file:
        file.write(units(3))
        file.truncate(SIZE_BYTES)
    queue = ConsumeQueue(tmp_path, "T", 0, SIZE_BYTES)
    queue.load(300)
    assert list(queue.newest_units()) == [(200, 100), (100, 100), (0, 100)]
    assert queue.is_short
    queue.recover(200)
    assert (queue.max_offset, queue.commit_log_end) == (2, 200)
    queue.close()


def test_most_queues_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = ConsumeQueue(tmp_path / "T" / "0", "T", 0, 6_000_000)
    for number in range(3):
        queue.append(number, 100 * number, 100, 0)
    queue.close()
    for way in (unit_files.read_short_queue_in_python, unit_files.read_short_queue):
        monkeypatch.setattr(unit_queue, "read_short_queue", way)
        again = ConsumeQueue(tmp_path / "T" / "0", "T", 0, 6_000_000)
        again.load(300)
        assert again.is_short
        again.close()
