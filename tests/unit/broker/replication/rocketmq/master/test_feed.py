"""One slave's connection: where it begins, what frames hold, and when it is ended."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from rockhopper.broker.replication.rocketmq.master.feed import Feed, FeedError, FeedSettings
from rockhopper.broker.replication.rocketmq.master.slaves import Slave
from rockhopper.protocol.ha_frames import HaFrame
from rockhopper.sockets import close_server
from tests.support.classic_slave import ClassicSlave
from tests.support.turns import until

FILE_SIZE_BYTES = 1000
BATCH_SIZE_BYTES = 300


class Log:
    """Bytes that tell where they stand."""

    file_size_bytes = FILE_SIZE_BYTES

    def __init__(self, start: int, end: int) -> None:
        self.start_offset, self.end_offset = start, end

    def read(self, start: int, end: int) -> bytes:
        assert start // FILE_SIZE_BYTES == (end - 1) // FILE_SIZE_BYTES
        return expected(start, end) if start >= self.start_offset else b""


def expected(start: int, end: int) -> bytes:
    return bytes(offset % 251 for offset in range(start, end))


class Served:
    """A feed that serves one slave, and why it ended."""

    def __init__(self, log: Log, settings: FeedSettings) -> None:
        self.log = log
        self.slave = Slave("127.0.0.1", 0)
        self.reports = 0
        self.why: Exception | None = None
        self._settings = settings
        self.feed: Feed | None = None

    def report_came(self) -> None:
        self.reports += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.feed = Feed(self.slave, self.log, self._settings, reader, writer, self)
        try:
            await self.feed.serve()
        except (FeedError, OSError) as error:
            self.why = error


Serving = Callable[..., contextlib.AbstractAsyncContextManager[tuple[Served, ClassicSlave]]]


@pytest.fixture
def serving() -> Serving:
    @contextlib.asynccontextmanager
    async def serve(
        start: int = 0, end: int = 2500, **settings: float
    ) -> AsyncIterator[tuple[Served, ClassicSlave]]:
        given = {"heartbeat_s": 60.0, "silence_s": 60.0, **settings}
        served = Served(Log(start, end), FeedSettings(BATCH_SIZE_BYTES, **given))  # type: ignore[arg-type]
        server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
        async with ClassicSlave(server.sockets[0].getsockname()[1]) as slave:
            yield served, slave
            slave.leave()
            await until(lambda: served.why is not None or served.feed is None)
        await close_server(server)

    return serve


@pytest.mark.parametrize(("report", "begins"), [(0, 2000), (1, 1), (1234, 1234), (2500, 2500)])
async def test_the_first_report_says_where_to_begin(
    report: int, begins: int, serving: Serving
) -> None:
    async with serving(heartbeat_s=0.01) as (_, slave):
        slave.report(report)
        await slave.copy_to(2500)
        assert slave.frames[0].offset == begins
        assert slave.data == expected(begins, 2500)


async def test_an_empty_slave_gets_all_if_that_is_set(serving: Serving) -> None:
    async with serving(start=1000, is_from_last_file=False) as (_, slave):
        slave.report(0)
        await slave.copy_to(2500)
        assert slave.data == expected(1000, 2500)


async def test_frames_are_small_and_cross_no_file(serving: Serving) -> None:
    async with serving() as (_, slave):
        slave.report(1)
        await slave.copy_to(2500)
        ends = [frame.offset + len(frame.data) for frame in slave.frames]
        assert ends == [301, 601, 901, 1000, 1300, 1600, 1900, 2000, 2300, 2500]


async def test_what_is_written_later_follows_at_once(serving: Serving) -> None:
    async with serving() as (served, slave):
        slave.report(1)
        await slave.copy_to(2500)
        served.log.end_offset = 2600
        assert served.feed is not None
        served.feed.wake()
        await slave.copy_to(2600)


async def test_a_heartbeat_says_where_data_will_go_on(serving: Serving) -> None:
    async with serving(heartbeat_s=0.01) as (_, slave):
        slave.report(2500)
        assert (await slave.next_frames())[0] == HaFrame(2500, b"")


async def test_reports_acknowledge(serving: Serving) -> None:
    async with serving() as (served, slave):
        slave.report(2000)
        await slave.copy_to(2500)
        slave.report(2400)
        await until(lambda: served.slave.acked_offset == 2400)
        assert served.reports == 2


@pytest.mark.parametrize(
    ("reports", "complaint"),
    [
        ([2501], "ends at offset 2501, beyond the end of this one at 2500"),
        ([-1], "ends at offset -1"),
        ([999], "starts at 1000: the messages between them have expired"),
        ([2000, 2501], "only the log up to 2500 was sent"),
        ([2000, -5], "reports offset -5"),
    ],
)
async def test_what_cannot_be_true_ends_the_connection(
    reports: list[int], complaint: str, serving: Serving
) -> None:
    async with serving(start=1000) as (served, slave):
        slave.report(reports[0])
        for report in reports[1:]:
            await slave.copy_to(2500)
            slave.report(report)
        await slave.closed()
        await until(lambda: served.why is not None)
        assert complaint in str(served.why)


async def test_what_has_expired_meanwhile_ends_the_connection(serving: Serving) -> None:
    async with serving() as (served, slave):
        slave.report(1)
        await slave.copy_to(2500)
        served.log.start_offset, served.log.end_offset = 3000, 3500
        assert served.feed is not None
        served.feed.wake()
        await slave.closed()
        await until(lambda: served.why is not None)
        assert "at offset 2500, but this log starts at 3000" in str(served.why)


async def test_silence_ends_the_connection(serving: Serving) -> None:
    async with serving(silence_s=0.01) as (served, slave):
        await slave.closed()
        await until(lambda: served.why is not None)
        assert "silent for 0.01 s" in str(served.why)
