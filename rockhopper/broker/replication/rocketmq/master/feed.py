"""Feed: one slave's connection. Its reports come in; the log, or heartbeats, go out.

The first report says where to begin: 0 at the start of the newest file, or of all if that is set;
any other exactly there.
What it reports later acknowledges. A report that cannot be true closes the connection: a slave with
a longer log is another's, and nothing that it confirms is a copy of ours.

RocketMQ takes any report for true, and the largest ever for all later messages.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rockhopper.broker.replication.rocketmq.master.slaves import Slave
from rockhopper.protocol.ha_frames import HaFrame, HaReportDecoder, encode_ha_frame
from rockhopper.tasks import start_task

READ_SIZE_BYTES = 4096


class FeedError(Exception):
    """A slave cannot be served, or not any more; str() says why and what to do."""


class SentLog(Protocol):
    """The log as slaves get it."""

    @property
    def start_offset(self) -> int:
        """The first byte that there is."""

    @property
    def end_offset(self) -> int:
        """Behind the last byte that may be sent."""

    @property
    def file_size_bytes(self) -> int:
        """How long each of its files is."""

    def read(self, start: int, end: int) -> bytes:
        """What stands in [start, end) of one file; nothing if it is gone."""


class FeedSettings(NamedTuple):
    """How to send."""

    batch_size_bytes: int
    heartbeat_s: float
    silence_s: float
    is_from_last_file: bool = True
    """Whether an empty slave gets the newest file alone."""


class Feed:
    """Serves one slave. Belongs to the event loop."""

    def __init__(
        self,
        slave: Slave,
        log: SentLog,
        settings: FeedSettings,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_report: Callable[[], None],
    ) -> None:
        """*on_report* is called after each change of *slave*."""
        self.host = slave.host
        self._slave = slave
        self._log = log
        self._settings = settings
        self._reader = reader
        self._writer = writer
        self._on_report = on_report
        self._is_more = asyncio.Event()

    def wake(self) -> None:
        """Look whether there is more of the log to send."""
        self._is_more.set()

    def end(self) -> None:
        """Have ``serve`` end soon."""
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Serve until the connection ends.

        Raises:
            FeedError: this side ended it.
            OSError: the other did.
        """
        sending = start_task(self._send())
        receiving = start_task(self._receive())
        try:
            done, _ = await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            sending.cancel()
            receiving.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
            self._writer.transport.abort()

    async def _receive(self) -> None:
        decoder, silence_s = HaReportDecoder(), self._settings.silence_s
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    data = await self._reader.read(READ_SIZE_BYTES)
            except TimeoutError:
                raise FeedError(f"it was silent for {silence_s:g} s") from None
            if not data:
                raise ConnectionResetError("it closed the connection")
            offset = decoder.feed(data)
            if offset is not None:
                self._take(offset)

    def _take(self, offset: int) -> None:
        slave = self._slave
        if slave.next_offset is None:
            slave.next_offset = self._first_offset(offset)
            self._is_more.set()
        elif not 0 <= offset <= slave.next_offset:
            raise FeedError(
                f"it reports offset {offset} and was sent nothing beyond {slave.next_offset}: its "
                "log is not a copy of this one"
            )
        slave.acked_offset = offset
        self._on_report()

    def _first_offset(self, offset: int) -> int:
        start, end = self._log.start_offset, self._log.end_offset
        if not 0 <= offset <= end:
            raise FeedError(
                f"its log ends at offset {offset} and this one at {end}: it has what was lost "
                "here, or is another's slave. Let it follow with an empty directory"
            )
        if offset == 0:
            newest = max(end - end % self._log.file_size_bytes, start)
            return newest if self._settings.is_from_last_file else start
        if offset < start:
            raise FeedError(
                f"its log ends at offset {offset} and this one begins at {start}: what is between "
                "them has expired. Let it follow with an empty directory"
            )
        return offset

    async def _send(self) -> None:
        loop, heartbeat_s = asyncio.get_running_loop(), self._settings.heartbeat_s
        sent_s = loop.time()
        while True:
            self._is_more.clear()
            if self._send_some():
                sent_s = loop.time()
                await self._writer.drain()
                # A socket that takes all of it would keep the loop from everybody else.
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout_at(sent_s + heartbeat_s):
                    await self._is_more.wait()
            except TimeoutError:
                sent_s = loop.time()
                self._send_heartbeat()

    def _send_some(self) -> bool:
        """Send the next frame; False if there is nothing to send."""
        start, log = self._slave.next_offset, self._log
        if start is None or start >= log.end_offset:
            return False
        file_end = start - start % log.file_size_bytes + log.file_size_bytes
        end = min(start + self._settings.batch_size_bytes, file_end, log.end_offset)
        data = log.read(start, end)
        if len(data) != end - start:
            raise FeedError(
                f"it is at offset {start} and this log begins at {log.start_offset}: what is "
                "between them has expired. Let it follow with an empty directory"
            )
        self._writer.write(encode_ha_frame(HaFrame(start, data)))
        self._slave.next_offset = end
        return True

    def _send_heartbeat(self) -> None:
        if self._slave.next_offset is not None:
            self._writer.write(encode_ha_frame(HaFrame(self._slave.next_offset, b"")))
