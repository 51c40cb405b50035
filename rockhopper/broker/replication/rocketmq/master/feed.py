"""Feed: one slave's connection. Its reports come in; the log, or heartbeats, go out.

The first report names the offset to begin at. 0 means the start of the newest file, or of the whole
log if that is configured; any other offset counts exactly. Later reports acknowledge. An impossible
report closes the connection: a slave with a longer log belongs to another master, and its
log is not a copy of this one.

RocketMQ trusts any report, and applies the largest one ever received to all later messages.
"""

import asyncio
from typing import NamedTuple, Protocol

from rockhopper.broker.replication.rocketmq.master.slaves import Slave
from rockhopper.protocol.ha_frames import HaFrame, HaReportDecoder, encode_ha_frame
from rockhopper.tasks import start_task

READ_SIZE_BYTES = 4096


class FeedError(Exception):
    """The slave cannot be served any more; str() gives the reason and the remedy."""


class SentLog(Protocol):
    """The part of the log that is sent to slaves."""

    @property
    def start_offset(self) -> int:
        """The offset of the first byte of the log."""

    @property
    def end_offset(self) -> int:
        """The end of the part that may be sent."""

    @property
    def file_size_bytes(self) -> int:
        """The size of each log file."""

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes in [start, end) of one file; empty if they were deleted."""


class FeedSettings(NamedTuple):
    """The batch size and the times of sending."""

    batch_size_bytes: int
    heartbeat_s: float
    silence_s: float
    is_from_last_file: bool = True
    """Whether an empty slave gets only the newest file."""


class FeedOwner(Protocol):
    """Knows all slaves."""

    def report_came(self) -> None:
        """Note that one of the slaves has changed."""


class Feed:
    """Serves one slave. Belongs to the event loop."""

    def __init__(
        self,
        slave: Slave,
        log: SentLog,
        settings: FeedSettings,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        owner: FeedOwner,
    ) -> None:
        """*owner* is notified after each change of *slave*."""
        self.host = slave.host
        self._slave = slave
        self._log = log
        self._settings = settings
        self._reader = reader
        self._writer = writer
        self._owner = owner
        self._is_more = asyncio.Event()

    def wake(self) -> None:
        """Check whether there is more of the log to send."""
        self._is_more.set()

    def stop(self) -> None:
        """Make ``serve`` end soon."""
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Serve until the connection ends.

        Raises:
            FeedError: this side ended it.
            OSError: the slave ended it.
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
                f"it reports offset {offset}, but only the log up to {slave.next_offset} was "
                "sent to it: its log is not a copy of this one"
            )
        slave.acked_offset = offset
        self._owner.report_came()

    def _first_offset(self, offset: int) -> int:
        start, end = self._log.start_offset, self._log.end_offset
        if not 0 <= offset <= end:
            raise FeedError(
                f"its log ends at offset {offset}, beyond the end of this one at {end}: it has "
                "messages that were lost here, or belongs to another master. Start it with an "
                "empty directory"
            )
        if offset == 0:
            newest = max(end - end % self._log.file_size_bytes, start)
            return newest if self._settings.is_from_last_file else start
        if offset < start:
            raise FeedError(
                f"its log ends at offset {offset}, but this one starts at {start}: the messages "
                "between them have expired. Start it with an empty directory"
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
                # A socket that accepts everything would starve the other tasks of the loop.
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout_at(sent_s + heartbeat_s):
                    await self._is_more.wait()
            except TimeoutError:
                sent_s = loop.time()
                self._send_heartbeat()

    def _send_some(self) -> bool:
        """Send the next frame; return False if there is nothing to send."""
        start, log = self._slave.next_offset, self._log
        if start is None or start >= log.end_offset:
            return False
        file_end = start - start % log.file_size_bytes + log.file_size_bytes
        end = min(start + self._settings.batch_size_bytes, file_end, log.end_offset)
        data = log.read(start, end)
        if len(data) != end - start:
            raise FeedError(
                f"it is at offset {start}, but this log starts at {log.start_offset}: the "
                "messages between them have expired. Start it with an empty directory"
            )
        self._writer.write(encode_ha_frame(HaFrame(start, data)))
        self._slave.next_offset = end
        return True

    def _send_heartbeat(self) -> None:
        if self._slave.next_offset is not None:
            self._writer.write(encode_ha_frame(HaFrame(self._slave.next_offset, b"")))
