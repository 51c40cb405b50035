"""OutputReader: what a pipe's reader has taken, and whether it is still there."""

import asyncio
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.client.commands import reader
from rockhopper.client.commands.reader import OutputReader
from tests.support.turns import until


class Pipe:
    """A pipe in place of standard output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read_end, self.write_end = os.pipe()
        monkeypatch.setattr(reader, "_STDOUT", self.write_end)
        self.is_read = True

    def write(self) -> None:
        os.write(self.write_end, b"line\n")

    def go(self) -> None:
        """Its reader goes away."""
        if self.is_read:
            self.is_read = False
            os.close(self.read_end)

    def close(self) -> None:
        self.go()
        os.close(self.write_end)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe(monkeypatch)
    yield made
    made.close()


async def test_what_was_written_is_waited_for_until_it_was_read(pipe: Pipe) -> None:
    taking = asyncio.create_task(OutputReader().takes(pipe.write))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not taking.done()
    assert os.read(pipe.read_end, 100) == b"line\n"
    assert await taking


async def test_a_reader_that_goes_before_it_has_read_has_not_taken_it(pipe: Pipe) -> None:
    taking = asyncio.create_task(OutputReader().takes(pipe.write))
    await asyncio.sleep(0)
    pipe.go()
    assert not await taking


async def test_a_reader_that_reads_and_goes_has_taken_it(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both between the look for unread bytes and the look for the reader."""
    poll = select.poll

    def read_and_go() -> select.poll:
        if pipe.is_read:
            assert os.read(pipe.read_end, 100) == b"line\n"
            pipe.go()
        return poll()

    monkeypatch.setattr(select, "poll", read_and_go)
    assert await OutputReader().takes(pipe.write)


async def test_a_reader_that_has_gone_takes_nothing(pipe: Pipe) -> None:
    def write() -> None:
        raise BrokenPipeError

    assert not await OutputReader().takes(write)


async def test_a_file_takes_everything_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("wb") as file:
        monkeypatch.setattr(reader, "_STDOUT", file.fileno())
        output = OutputReader()
        gone: list[bool] = []
        with output.watched(lambda: gone.append(True)):
            assert await output.takes(lambda: None)
    assert gone == []


async def test_a_reader_that_goes_while_nothing_is_written_is_told(pipe: Pipe) -> None:
    gone: list[bool] = []
    with OutputReader().watched(lambda: gone.append(True)):
        await asyncio.sleep(0)
        assert gone == []
        pipe.go()
        await until(lambda: gone == [True])


async def test_nobody_is_told_afterwards(pipe: Pipe) -> None:
    gone: list[bool] = []
    with OutputReader().watched(lambda: gone.append(True)):
        pass
    pipe.go()
    for _ in range(5):
        await asyncio.sleep(0)
    assert gone == []
