"""ClassicMaster: the port for RocketMQ's slaves, and how the store waits for them.

    ASYNC_MASTER, or inSyncReplicas=1    the store waits for no slave
    SYNC_MASTER, inSyncReplicas=n        a message is acknowledged, and visible to consumers, once
                                         n-1 slaves have it too; they report what is in their page
                                         cache

RocketMQ shows consumers messages that no slave has yet. What was in the log when this process
started counts as confirmed, because nothing records which part was not. With SYNC_FLUSH, slaves
receive only what is on disk here, so a power cut never leaves a slave with a longer log than its
master's.

Any client that reaches the port receives every message: the protocol has no names and no secrets.
"""

import asyncio
import contextlib
import socket
import sys

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.replication.rocketmq.master.feed import Feed, FeedError, FeedSettings
from rockhopper.broker.replication.rocketmq.master.slaves import Slave, Slaves
from rockhopper.broker.server.listening.caller import Caller
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.settings.broker_config import BrokerConfig, BrokerRole
from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.files.errors import NotReplicatedError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.safe_point import StoreListener
from rockhopper.protocol.addresses import join_address

log = structlog.get_logger("broker.ha")

CONNECTIONS_MAX = 64
LAST_BYTES_TIMEOUT_S = 1.0
# Longer than the minute between two reads of the master's tables by a slave.
REFUSED_S = 150.0


class MasterLog:
    """The part of a store's log that slaves may receive."""

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self._store = store
        self._is_sync = config.store.flush_disk_type is FlushDiskType.SYNC
        self.file_size_bytes = config.store.commit_log_file_size_bytes

    @property
    def start_offset(self) -> int:
        """See SentLog."""
        return self._store.log.min_offset

    @property
    def end_offset(self) -> int:
        """See SentLog."""
        store = self._store
        return store.log.flushed_offset if self._is_sync else store.log.written_offset

    def read(self, start: int, end: int) -> bytes:
        """See SentLog."""
        return self._store.log.read_written(start, end)


class ClassicMaster(StoreListener):
    """Serves slaves from an open store. Belongs to the event loop."""

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self._store = store
        self._log = MasterLog(store, config)
        self._settings = FeedSettings(
            config.classic.transfer_batch_size_bytes,
            config.following.send_heartbeat_interval_ms / 1000,
            config.following.housekeeping_interval_ms / 1000,
            config.classic.sync_from_last_file,
        )
        self._acknowledging = config.acknowledging_slaves
        is_sync = config.broker_role is BrokerRole.SYNC_MASTER
        self._least = (config.replication.min_in_sync_replicas or 1) if is_sync else 1
        self._gap_bytes = config.classic.max_gap_bytes
        self._timeout_ms = config.replication.slave_timeout_ms
        self._listener: Listener | None = None
        self._feeds: dict[Feed, asyncio.Task[None]] = {}
        self._refused_until_s: dict[str, float] = {}
        self._is_telling = False
        self._reported = asyncio.Event()
        self.slaves = Slaves()

    def open(self) -> None:
        """Make the store wait for slaves from now on."""
        store = self._store
        confirmed = store.log.written_offset if self._acknowledging else sys.maxsize
        store.safe_point.replicate(confirmed, self._timeout_ms)
        store.listeners.add(self)
        self._look()

    async def start_on(self, bound: socket.socket, gate: Gate = OPEN) -> None:
        """Listen on *bound*. Raises OSError.

        RocketMQ's own slaves connect without TLS here.
        """
        listener = Listener(bound, self._make_protocol, name="slaves", gate=gate)
        await listener.start()
        self._listener = listener

    def _make_protocol(self, _caller: Caller) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._serve)

    async def close(self) -> None:
        """Send slaves the end of the log, for a second at most, and disconnect them."""
        if self._listener is not None:
            await self._listener.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_BYTES_TIMEOUT_S):
                while not self.slaves.have(self._log.end_offset):
                    self._reported.clear()
                    await self._reported.wait()
        for feed in self._feeds:
            feed.stop()
        await asyncio.gather(*self._feeds.values())
        # The next start counts the whole log as confirmed, so make the queues contain it.
        self._store.safe_point.confirm(sys.maxsize)

    def refuse(self, host: str, reason: str) -> None:
        """Refuse all slaves of that machine for a while, and log the reason."""
        now_s = asyncio.get_running_loop().time()
        if self._refused_until_s.get(host, 0.0) < now_s:
            log.error("slave refused", host=host, reason=reason)
        self._refused_until_s[host] = now_s + REFUSED_S
        for feed in self._feeds:
            if feed.host == host:
                feed.stop()

    @property
    def in_sync_count(self) -> int:
        """The number of machines whose logs are complete or nearly so, this master included."""
        return 1 + self.slaves.count_in_sync(self._log.end_offset, self._gap_bytes)

    def ha_runtime_info(self) -> JsonObject:
        """Return RocketMQ's HARuntimeInfo."""
        end = self._log.end_offset
        return {
            "master": True,
            "masterCommitLogMaxOffset": self._store.log.written_offset,
            "inSyncSlaveNums": self.in_sync_count - 1,
            "haConnectionInfo": [
                {
                    "addr": join_address(slave.host, slave.port),
                    "slaveAckOffset": slave.acked_offset,
                    "diff": end - slave.acked_offset,
                    "inSync": slave.is_known and end - slave.acked_offset <= self._gap_bytes,
                    "transferredByteInSecond": 0,
                    "transferFromWhere": slave.next_offset or 0,
                }
                for slave in self.slaves
            ],
            "haClientRuntimeInfo": {
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "maxOffset": 0,
                "transferredByteInSecond": 0,
            },
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        if not self._admits(host):
            writer.transport.abort()
            return
        slave = Slave(host, port)
        feed = Feed(slave, self._log, self._settings, reader, writer, self)
        task = asyncio.current_task()
        assert task is not None
        self._feeds[feed] = task
        self.slaves.register(slave)
        log.info("slave connected", host=host, port=port)
        try:
            await feed.serve()
        except FeedError as error:
            log.error("slave disconnected", host=host, port=port, reason=str(error))
        except OSError as error:
            log.warning("slave connection lost", host=host, port=port, reason=str(error))
        finally:
            self.slaves.remove(slave)
            del self._feeds[feed]
            self.report_came()

    def _admits(self, host: str) -> bool:
        if self._refused_until_s.get(host, 0.0) >= asyncio.get_running_loop().time():
            return False
        if len(self._feeds) >= CONNECTIONS_MAX:
            log.error("slave refused", host=host, reason=f"{CONNECTIONS_MAX} are connected")
            return False
        return True

    def report_came(self) -> None:
        """See FeedOwner."""
        self._reported.set()
        if self._acknowledging:
            self._store.safe_point.confirm(
                self.slaves.compute_replicated_offset(self._acknowledging)
            )
        self._look()

    def store_flushed(self) -> None:
        """See StoreListener."""
        self.store_written()

    def store_written(self) -> None:
        """Notify slaves soon, once for everything written in one iteration of the loop."""
        if not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        for feed in self._feeds:
            feed.wake()
        if not self._acknowledging:
            self._store.safe_point.moved()
        self._look()

    def _look(self) -> None:
        """Refuse sends while too few replicas are in sync."""
        self._store.refusal = None
        if self._least > 1 and self.in_sync_count < self._least:
            self._store.refusal = NotReplicatedError(
                "in-sync replicas not enough: nothing is stored until "
                f"minInSyncReplicas={self._least} brokers, including this master, are in sync"
            )
