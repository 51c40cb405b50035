"""What followers are sent of a log, from where each of them is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.messages import Beat
from rockhopper.broker.replication.shipping import streams
from rockhopper.broker.replication.shipping.link import Link
from rockhopper.broker.replication.shipping.streams import Streams
from tests.support.turns import until

PIECE = 8


class Log:
    """A log in memory."""

    def __init__(self) -> None:
        self.data = b""
        self.start_offset = 0
        self.reads = 0

    @property
    def end_offset(self) -> int:
        return len(self.data)

    def read(self, offset: int, size_bytes_max: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + size_bytes_max] if offset >= self.start_offset else b""


class Follower(Link):
    """Takes what it is sent as its end of a connection would."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.data = b""
        self.confirmed: list[int] = []
        self.is_gone = False
        self._frames_of = wire.WireDecoder()

    @property
    def is_closing(self) -> bool:
        return self.is_gone

    def send(self, *parts: bytes) -> None:
        for frame in self._frames_of.feed(b"".join(parts)):
            assert isinstance(frame, wire.LogData)
            assert frame.log_offset == len(self.data)
            self.data += frame.log_bytes
            self.confirmed.append(frame.beat.replicated_offset)

    def close(self) -> None:
        self.is_gone = True


class Rig:
    def __init__(self) -> None:
        self.log = Log()
        self.beat: Beat | None = Beat(5, 0)
        self.streams = Streams(self.log, lambda: self.beat)  # type: ignore[arg-type]
        self.epoch = 5
        self.followers = [Follower(1), Follower(2)]
        self.tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[list[Follower]]:
        for each in self.followers:
            self.tasks.append(
                asyncio.ensure_future(self.streams.serve(each, len(each.data), self.epoch))
            )
        await asyncio.sleep(0)
        yield self.followers
        for each in self.followers:
            each.is_gone = True
            each.resume_writing()
            self.streams.closed(each.number)
        await asyncio.gather(*self.tasks)

    def write(self, data: bytes) -> None:
        self.log.data += data
        self.streams.wrote()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(streams, "FRAME_SIZE_BYTES", PIECE)
    return Rig()


async def test_what_is_new_leaves_in_the_turn_that_wrote_it_and_is_read_once(rig: Rig) -> None:
    async with rig.serving() as (one, other):
        rig.log.reads = 0
        rig.beat = Beat(5, 70)
        rig.write(b"new")
        assert (one.data, other.data, rig.log.reads) == (b"new", b"new", 1)
        assert one.confirmed == [70]
        rig.write(b"er")
        assert one.data == other.data == b"newer"


async def test_who_is_behind_is_sent_everything_in_order(rig: Rig) -> None:
    rig.log.data = b"0123456789abcdefghij"
    async with rig.serving() as (one, other):
        await until(lambda: one.data == other.data == rig.log.data)
        rig.write(b"ABCDEFGHIJKLMNOPQRST")
        rig.write(b"!")
        await until(lambda: one.data == other.data == rig.log.data)


async def test_who_takes_less_than_comes_is_waited_for(rig: Rig) -> None:
    async with rig.serving() as (one, other):
        one.pause_writing()
        rig.write(b"123")
        rig.write(b"456")
        await until(lambda: one.data == other.data == b"123456")
        rig.write(b"789")
        assert (one.data, other.data) == (b"123456", b"123456789")
        one.resume_writing()
        await until(lambda: one.data == b"123456789")


@pytest.mark.parametrize("what", ["link", "term"])
async def test_a_stream_ends_with_its_link_and_with_the_term(rig: Rig, what: str) -> None:
    async with rig.serving() as (one, other):
        if what == "link":
            one.close()
            rig.streams.closed(one.number)
        else:
            rig.beat = None
            rig.streams.wrote()
        await rig.tasks[0]
        rig.beat = rig.beat or Beat(6, 0)
        rig.write(b"new")
        assert one.data == b""
        if what == "link":
            assert other.data == b"new"


async def test_a_later_term_sends_what_stands_there_then(rig: Rig) -> None:
    async with rig.serving():
        rig.write(b"cut away")
    rig.log.data = b"anew"
    rig.followers, rig.tasks = [Follower(3)], []
    async with rig.serving() as (third,):
        assert third.data == b"anew"


async def test_who_was_outrun_by_retention_is_let_go(rig: Rig) -> None:
    rig.log.data, rig.log.start_offset = b"123456", 4
    async with rig.serving() as (one, other):
        assert one.is_gone
        assert other.is_gone
        assert one.data == b""
