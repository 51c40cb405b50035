"""Streams: what a master's followers lack of the log, sent to each from where it is.

A follower that has all there was is sent what is new in the turn of the loop that wrote it, and
what goes to several of them is read and summed up once. One that is behind, or takes less than
comes, has its frames from a task that waits for it.
"""

import asyncio
from collections.abc import Callable

import structlog

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.messages import Beat
from rockhopper.broker.replication.shipping.link import Link
from rockhopper.broker.replication.shipping.replica_log import ReplicaLog
from rockhopper.broker.store.log.fast_encoding import crc32

log = structlog.get_logger("broker.ha")

FRAME_SIZE_BYTES = 256 << 10
NOTHING = 0, b"", 0


class Stream:
    """How far a follower was sent the log."""

    def __init__(self, link: Link, offset: int, epoch: int) -> None:
        self.link = link
        self.offset = offset
        self.epoch = epoch
        self.more = asyncio.Event()
        self.is_waiting = False
        """For more of the log."""


class Streams:
    """Those of one replica, while it leads."""

    def __init__(self, replica_log: ReplicaLog, beat: Callable[[], Beat | None]) -> None:
        """*beat* is what the head of the next frame says; None while this replica does not lead."""
        self._log = replica_log
        self._beat = beat
        self._streams: dict[int, Stream] = {}
        self._piece = NOTHING

    async def serve(self, link: Link, start_offset: int, epoch: int) -> None:
        """Send the log from an offset on, until the link closes or the epoch is over."""
        self._piece = NOTHING
        stream = self._streams[link.number] = Stream(link, start_offset, epoch)
        try:
            while (beat := self._beat()) and not self._is_over(stream, beat):
                stream.more.clear()
                if self._send_next(stream, beat):
                    await link.drain()
                else:
                    stream.is_waiting = True
                    await stream.more.wait()
                    stream.is_waiting = False
        finally:
            self._streams.pop(link.number, None)

    def wrote(self) -> None:
        """Send what is new."""
        if not self._streams:
            return
        beat, end = self._beat(), self._log.end_offset
        for stream in self._streams.values():
            if not self._is_served(stream, beat, end):
                stream.more.set()

    def _is_served(self, stream: Stream, beat: Beat | None, end_offset: int) -> bool:
        """Whether a stream has all there is, without its task; send it what is new for that."""
        is_ready = stream.is_waiting and not stream.more.is_set() and not stream.link.is_full
        if not is_ready or beat is None or self._is_over(stream, beat):
            return False
        return not self._send_next(stream, beat) or stream.offset >= end_offset

    def closed(self, link_number: int) -> None:
        """End the stream on a link, if there is one."""
        if stream := self._streams.get(link_number):
            stream.more.set()

    def _is_over(self, stream: Stream, beat: Beat) -> bool:
        return stream.epoch != beat.epoch or stream.link.is_closing

    def _send_next(self, stream: Stream, beat: Beat) -> bool:
        """Send the next frame, if there is anything to send."""
        data, crc = self._next_piece(stream.offset)
        if not data:
            if stream.offset < self._log.start_offset:
                self._let_go(stream)
            return False
        stream.link.send(wire.data_head(beat, stream.offset, len(data), crc), data)
        stream.offset += len(data)
        return True

    def _let_go(self, stream: Stream) -> None:
        log.warning(
            "retention deleted log that a follower had not read: it is seeded again",
            peer=stream.link.peer,
            follower_end=stream.offset,
            log_start=self._log.start_offset,
        )
        stream.link.close()

    def _next_piece(self, offset: int) -> tuple[bytes, int]:
        known, data, crc = self._piece
        if known != offset or not data:
            data = self._log.read(offset, FRAME_SIZE_BYTES)
            crc = crc32(data)
            self._piece = offset, data, crc
        return data, crc
