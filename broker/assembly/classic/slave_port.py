"""SlavePort: haListenPort of haMode=classic, where slaves of RocketMQ's copy this broker's log.

The bytes are protocol/ha_frames.py's. A slave proves nothing: whoever reaches the port gets
all messages, so it is open only if the setting says so. Nothing waits for a slave: an answer means
what this broker has.
"""

import asyncio
import contextlib
import struct
from dataclasses import dataclass

import structlog

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.ha_frames import HaFrame, encode_ha_frame

log = structlog.get_logger("broker.classic")

FRAME_SIZE_BYTES = 32 << 10
LOOK_INTERVAL_S = 0.02
IN_SYNC_BYTES = 256 << 20
_REPORT = struct.Struct(">q")


@dataclass(eq=False, slots=True)
class Slave:
    """One connection."""

    address: str
    acknowledged_offset: int = -1
    """-1 until it has said where to begin."""
    sent_offset: int = 0


class SlavePort:
    """Belongs to the event loop."""

    def __init__(
        self, store: MessageStore, file_size_bytes: int, *, heartbeat_s: float, silence_s: float
    ) -> None:
        self.slaves: set[Slave] = set()
        self._store = store
        self._file_size_bytes = file_size_bytes
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_server(self._accepted, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        slave = Slave(f"{host}:{port}")
        self.slaves.add(slave)
        sending: asyncio.Task[None] | None = None
        reason = "it has closed the connection"
        try:
            while True:
                async with asyncio.timeout(self._silence_s):
                    (offset,) = _REPORT.unpack(await reader.readexactly(_REPORT.size))
                if offset > self._store.max_commit_log_offset or offset < 0:
                    reason = (
                        f"it has the log up to {offset}, and it ends at "
                        f"{self._store.max_commit_log_offset} here: its store is another's"
                    )
                    break
                slave.acknowledged_offset = offset
                if sending is None:
                    log.info("a slave follows", slave=slave.address, from_offset=offset)
                    work = self._send(writer, slave, self._begin(offset))
                    sending = asyncio.get_running_loop().create_task(work)
        except TimeoutError:
            reason = "it was silent"
        except (asyncio.IncompleteReadError, OSError):
            pass  # It went away, as ``reason`` says.
        finally:
            self.slaves.discard(slave)
            log.info("a slave follows no more", slave=slave.address, reason=reason)
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            writer.transport.abort()

    def _begin(self, offset: int) -> int:
        """An empty slave gets the newest file, as RocketMQ's masters do it."""
        if offset:
            return max(offset, self._store.min_commit_log_offset)
        end = self._store.max_commit_log_offset
        return max(end - end % self._file_size_bytes, self._store.min_commit_log_offset)

    async def _send(self, writer: asyncio.StreamWriter, slave: Slave, offset: int) -> None:
        loop = asyncio.get_running_loop()
        spoken_at_s = loop.time()
        slave.sent_offset = offset
        with contextlib.suppress(OSError):
            while True:
                file_end = offset - offset % self._file_size_bytes + self._file_size_bytes
                data = self._store.log_bytes(offset, min(offset + FRAME_SIZE_BYTES, file_end))
                if data or loop.time() - spoken_at_s >= self._heartbeat_s:
                    writer.write(encode_ha_frame(HaFrame(offset, data)))
                    await writer.drain()
                    spoken_at_s = loop.time()
                offset = slave.sent_offset = offset + len(data)
                if not data:
                    await asyncio.sleep(LOOK_INTERVAL_S)

    def runtime_info(self) -> dict[str, object]:
        """RocketMQ's HARuntimeInfo of a master."""
        end = self._store.max_commit_log_offset
        connections = [
            {
                "addr": slave.address,
                "slaveAckOffset": max(slave.acknowledged_offset, 0),
                "diff": end - max(slave.acknowledged_offset, 0),
                "inSync": end - slave.acknowledged_offset < IN_SYNC_BYTES,
                "transferredByteInSecond": 0,
                "transferFromWhere": slave.sent_offset,
            }
            for slave in sorted(self.slaves, key=lambda each: each.address)
            if slave.acknowledged_offset >= 0
        ]
        return {
            "master": True,
            "masterCommitLogMaxOffset": end,
            "inSyncSlaveNums": sum(bool(each["inSync"]) for each in connections),
            "haConnectionInfo": connections,
            "haClientRuntimeInfo": {
                "masterAddr": "",
                "maxOffset": 0,
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "transferredByteInSecond": 0,
                "isActivated": False,
            },
        }
