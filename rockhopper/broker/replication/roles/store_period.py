"""StorePeriod: the time from opening a replica's store to closing it, and all that is open in it.

    open       tables, store, state applier, name server; the broker's port refuses clients
    follow     up to the confirmed offset, messages enter their queues, and state is applied
    finish     the rest of the log is dispatched and its state applied, as after a kill
    serve      the parts are opened, a snapshot of the state is written, clients are admitted
    close      everything that was opened, in reverse; also if opening or serving failed half-way

A period that serves never follows again: a deposed master closes it and opens the next one.
"""

import asyncio
import contextlib
from typing import NamedTuple

from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.replication.roles.client_ports import ClientPorts
from rockhopper.broker.replication.roles.replica_store import ReplicaStore
from rockhopper.broker.replication.roles.role_changes import RoleChanges
from rockhopper.broker.replication.shipping.replica import RunningReplica, now_ms
from rockhopper.broker.replication.state.state_applier import StateApplier
from rockhopper.broker.replication.state.state_log import STATE_QUEUE_ID
from rockhopper.broker.replication.state.state_writer import StateWriter
from rockhopper.protocol.names import STATE_TOPIC


class OpenAs(NamedTuple):
    """The arguments with which a store is opened, besides its settings."""

    store_host: bytes
    mapped_files_max: int


class StorePeriod:
    """One opening of the store: as a follower's, then perhaps as a master's."""

    def __init__(
        self,
        parts: BrokerCore,
        client_ports: ClientPorts,
        replica_store: ReplicaStore,
        roles: RoleChanges,
    ) -> None:
        self._parts = parts
        self._client_ports = client_ports
        self._replica_store = replica_store
        self._roles = roles
        self._undo = contextlib.AsyncExitStack()
        self._applier: StateApplier | None = None
        self.writer: StateWriter | None = None
        """Writes the changes of state for the followers; None while this replica follows."""
        self.is_serving = False
        """Whether clients were admitted."""

    async def open(self, open_as: OpenAs, cut_at: int | None) -> None:
        """Open the store as a follower's, and refuse clients.

        Raises:
            StoreError: the store or a table cannot be read. ``close`` undoes what was done.
            OSError: a file or a port cannot be opened.
            StartError: raised by the client ports.
        """
        parts, undo = self._parts, self._undo
        parts.load_tables()
        self._client_ports.load_names()
        # In a thread, because forwarding clients to another master continues meanwhile.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, parts.open_store, *open_as, cut_at)
        undo.push_async_callback(self._close_store)
        await parts.store.start()
        undo.push_async_callback(parts.tables.close)
        applier = StateApplier(parts.store, parts.tables)
        applier.open()
        # After everything that may fail, so a failed start saves nothing.
        self._applier = applier
        parts.tables.start()
        await self._client_ports.open_names(undo)
        await self._client_ports.refuse(undo)
        self._replica_store.opened(parts.store)

    async def _close_store(self) -> None:
        """Close the store.

        If the stop precedes the demotion, unconfirmed messages stay unconfirmed.
        """
        await self._parts.store.close(opens_again=not self._roles.is_closing)

    def follow_to(self, offset: int) -> None:
        """Show the log before *offset*, and apply its state."""
        self._parts.store.follow_to(offset)
        if self._applier is not None:
            self._applier.apply_to(offset)

    async def finish_following(self, end_offset: int) -> None:
        """Dispatch the log, which ends at *end_offset*, and apply its state."""
        store, applier = self._parts.store, self._applier
        assert applier is not None
        store.follow_to(end_offset)
        while store.catch_up():  # noqa: ASYNC110 - it works; it does not wait
            await asyncio.sleep(0)
        self._applier = None
        await applier.finish()

    async def serve(self, replica: RunningReplica) -> None:
        """Build and open the parts over a store that takes writes, and admit clients."""
        parts = self._parts
        await self._client_ports.build_parts()
        if parts.store.reading.queue_range(STATE_TOPIC, STATE_QUEUE_ID)[1]:
            parts.kernel.locks.lead(parts.tables.locks.held)
        await self._client_ports.serve(self._undo, lambda: self._start_writing(replica))
        self.is_serving = True

    def _start_writing(self, replica: RunningReplica) -> None:
        self.writer = StateWriter(
            self._parts.store,
            self._parts.tables,
            replica,
            interval_ms=self._parts.config.replication.state_interval_ms,
            now_ms=now_ms,
        )
        self.writer.start()

    async def close(self) -> None:
        """Close everything that was opened; a second call does nothing."""
        self.is_serving = False
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.drop()
        applier, self._applier = self._applier, None
        if applier is not None:
            await applier.close()
        self._replica_store.closing()
        await self._undo.aclose()
