"""A RocketMQ master made by hand: classic replication, and the requests of slaves."""

import asyncio
import contextlib
import json
import struct
from functools import partial
from pathlib import Path
from typing import Any, Self

from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.ha_frames import HaFrame, encode_ha_frame
from rockhopper.sockets import close_server
from tests.support.fake_server import FakeServer
from tests.support.turns import until
from tests.support.written_logs import WrittenLog

FILE_SIZE_BYTES = 65_536
QUEUE_OFFSETS = {"offsetTable": {"topic-0@billing": {"0": 3}}}
GROUPS = {"subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 5}}}
TIMER_CHECK = struct.pack(">7q", 7, 0, 2, 2, 0, 0, 0)


class ClassicMaster:
    """A master whose log is written by ``log.add``; ``tell`` sends it to the slaves.

    It sends frames of *frame_size_bytes* and, unless a test asks for it, no heartbeats.
    """

    def __init__(self, directory: Path, frame_size_bytes: int = 32 << 10) -> None:
        self.log = WrittenLog(directory, FILE_SIZE_BYTES)
        self.min_offset = 0
        self.frame_size_bytes = frame_size_bytes
        self.first_reports: list[int] = []
        self.reports: list[int] = []
        self.raw: bytes | None = None
        """Sent in place of frames, if set."""
        self.settings = {
            "brokerName": "broker-a",
            "brokerPermission": "6",
            "brokerRole": "ASYNC_MASTER",
            "mappedFileSizeCommitLog": str(FILE_SIZE_BYTES),
        }
        self.topics = {f"topic-{n}": {"readQueueNums": 2, "writeQueueNums": 2} for n in range(3)}
        self.server = FakeServer()
        self._peers: set[asyncio.StreamWriter] = set()
        self.came = asyncio.Condition()
        self.changed = asyncio.Condition()
        self._told = 0

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        self._ha = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.settings["haListenPort"] = str(self._ha.sockets[0].getsockname()[1])
        tables: dict[RequestCode, Any] = {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GROUPS,
            RequestCode.GET_ALL_CONSUMER_OFFSET: QUEUE_OFFSETS,
            RequestCode.GET_ALL_DELAY_OFFSET: {"offsetTable": {"3": 4}},
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: {"messageRequestModeMap": {}},
        }
        for code, table in tables.items():
            self.answer(code, json.dumps(table).encode())
        self.answer(RequestCode.GET_TIMER_CHECK_POINT, TIMER_CHECK)
        self.server.on(RequestCode.GET_BROKER_CONFIG, lambda _: Command(0, body=self._config()))
        self.server.on(RequestCode.GET_BROKER_RUNTIME_INFO, lambda _: Command(0, body=self._info()))
        self.server.on(RequestCode.GET_ALL_TOPIC_CONFIG, lambda _: Command(0, body=self._topics()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._ha)
        self.drop()
        await until(lambda: not self._peers)
        await self.server.__aexit__()

    def send(self, count: int) -> None:
        """Add messages to queue 0 of topic-0; see ``tell``."""
        for _ in range(count):
            number = len(self.log.offsets)
            self.log.add(topic="topic-0", queue_id=0, queue_offset=number)

    @property
    def address(self) -> str:
        """The address of its listen port."""
        return self.server.address

    def answer(self, code: RequestCode, body: bytes) -> None:
        """Answer requests of this code with *body* from now on."""
        self.server.on(code, lambda _: Command(0, body=body))

    def _config(self) -> bytes:
        return "".join(f"{key}={value}\n" for key, value in self.settings.items()).encode()

    def _info(self) -> bytes:
        low, high = str(self.min_offset), str(self.log.end)
        return json.dumps(
            {"table": {"commitLogMinOffset": low, "commitLogMaxOffset": high}}
        ).encode()

    def _topics(self) -> bytes:
        return json.dumps({"dataVersion": {}, "topicConfigTable": self.topics}).encode()

    def drop(self) -> None:
        """Break the connections of all slaves."""
        for writer in list(self._peers):
            writer.transport.abort()

    async def tell(self) -> None:
        """Send the new part of the log to the slaves, or a heartbeat if there is none."""
        async with self.changed:
            self._told += 1
            self.changed.notify_all()

    def _is_told_since(self, told: int) -> bool:
        return self._told != told

    async def reported(self, offset: int) -> None:
        """Return once a slave has reported *offset*."""
        async with self.came:
            await self.came.wait_for(lambda: offset in self.reports)

    async def reported_from(self, offset: int) -> None:
        """Return once a slave has reported *offset* or more."""
        async with self.came:
            await self.came.wait_for(lambda: max(self.reports, default=0) >= offset)

    async def connected(self, count: int) -> None:
        """Return once this many slaves have reported their start."""
        async with self.came:
            await self.came.wait_for(lambda: len(self.first_reports) >= count)

    def bytes_at(self, start: int, end: int) -> bytes:
        """Return bytes of the log, which must be in one file."""
        position = start % FILE_SIZE_BYTES
        return self.log.file_of(start).read_bytes()[position : position + end - start]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peers.add(writer)
        sending = None
        try:
            while True:
                (offset,) = struct.unpack(">q", await reader.readexactly(8))
                async with self.came:
                    self.reports.append(offset)
                    if sending is None:
                        self.first_reports.append(offset)
                        sending = asyncio.ensure_future(self._send(writer, offset))
                    self.came.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._peers.discard(writer)

    async def _send(self, writer: asyncio.StreamWriter, offset: int) -> None:
        if offset == 0:
            offset = self.log.end - self.log.end % FILE_SIZE_BYTES
        while True:
            told = self._told
            if self.raw is not None:
                writer.write(self.raw)
            elif offset < self.log.end:
                file_end = offset - offset % FILE_SIZE_BYTES + FILE_SIZE_BYTES
                end = min(offset + self.frame_size_bytes, file_end, self.log.end)
                writer.write(encode_ha_frame(HaFrame(offset, self.bytes_at(offset, end))))
                offset = end
                await writer.drain()
                continue
            else:
                writer.write(encode_ha_frame(HaFrame(offset, b"")))
            async with self.changed:
                await self.changed.wait_for(partial(self._is_told_since, told))
