"""Streams: send each follower the part of the log that it lacks.

A follower that has the whole log receives new data in the loop iteration that wrote it. Data for
several such followers is read and checksummed once. A follower that is behind, or reads too slowly,
receives its frames from a task that waits for it.
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


class FollowerStream:
    """How much of the log was sent to a follower."""

    def __init__(self, link: Link, offset: int, epoch: int) -> None:
        self.link = link
        self.offset = offset
        self.epoch = epoch
        self.more = asyncio.Event()
        self.is_waiting = False
        """Whether its task waits for more of the log."""


class Streams:
    """The streams of one replica while it leads."""

    def __init__(self, replica_log: ReplicaLog, beat: Callable[[], Beat | None]) -> None:
        """*beat* returns the head of the next frame; None while this replica does not lead."""
        self._log = replica_log
        self._beat = beat
        self._streams: dict[int, FollowerStream] = {}
        self._piece = NOTHING

    async def serve(self, link: Link, start_offset: int, epoch: int) -> None:
        """Send the log from an offset on, until the link closes or the epoch ends."""
        self._piece = NOTHING
        stream = self._streams[link.number] = FollowerStream(link, start_offset, epoch)
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
        """Send new data to all followers."""
        if not self._streams:
            return
        beat, end = self._beat(), self._log.end_offset
        for stream in self._streams.values():
            if not self._is_served(stream, beat, end):
                stream.more.set()

    def _is_served(self, stream: FollowerStream, beat: Beat | None, end_offset: int) -> bool:
        """Send new data directly if possible; return whether the stream then needs no task."""
        is_ready = stream.is_waiting and not stream.more.is_set() and not stream.link.is_full
        if not is_ready or beat is None or self._is_over(stream, beat):
            return False
        return not self._send_next(stream, beat) or stream.offset >= end_offset

    def closed(self, link_number: int) -> None:
        """End the stream on a link, if there is one."""
        if stream := self._streams.get(link_number):
            stream.more.set()

    def _is_over(self, stream: FollowerStream, beat: Beat) -> bool:
        return stream.epoch != beat.epoch or stream.link.is_closing

    def _send_next(self, stream: FollowerStream, beat: Beat) -> bool:
        """Send the next frame; return whether there was one."""
        data, crc = self._next_piece(stream.offset)
        if not data:
            if stream.offset < self._log.start_offset:
                self._let_go(stream)
            return False
        stream.link.send(wire.data_head(beat, stream.offset, len(data), crc), data)
        stream.offset += len(data)
        return True

    def _let_go(self, stream: FollowerStream) -> None:
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
