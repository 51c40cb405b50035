"""Lines of standard input."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.client.commands.stdin_lines import read_stdin_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(descriptor)


async def test_lines_come_as_they_are_written(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines = read_stdin_lines(reader)
    os.write(writer, b"one\ntw")
    assert await anext(lines) == b"one"
    os.write(writer, b"o\r\n\nthree")
    assert await anext(lines) == b"two"
    os.close(writer)
    assert [line async for line in lines] == [b"three"]


async def test_a_pipe_is_left_blocking(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.write(writer, b"x\n")
    await anext(read_stdin_lines(reader))
    assert os.get_blocking(reader)


async def test_a_file_and_dev_null_can_be_read_too(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(100_000)))
    with path.open("rb") as file:
        lines = [line async for line in read_stdin_lines(file.fileno())]
    assert lines == [b"%d" % number for number in range(100_000)]
    with open(os.devnull, "rb") as file:
        assert [line async for line in read_stdin_lines(file.fileno())] == []


async def test_a_long_line_comes_whole(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 1_000_000 + b"\n" + b"y" * 300_000)
    with path.open("rb") as file:
        lines = [line async for line in read_stdin_lines(file.fileno())]
    assert [len(line) for line in lines] == [1_000_000, 300_000]
