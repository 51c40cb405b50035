"""SetMember: a broker's work as a member of its replica set, from start to stop.

    following   the store appends a master's log; up to the confirmed offset, messages enter their
                queues and the state that is not in the log is applied; clients are refused
    promotion   1  the whole log becomes confirmed: consumers see all that the last master showed
                2  messages are dispatched, and the state applied, as after a kill
                3  the store accepts writes, and the parts are opened on it
                4  a snapshot of the state is written, and from now on each change
                5  clients are admitted
    serving     an answer waits until the log is confirmed
    demotion    at once writes end, and waiting requests fail; then the store is closed as after
                a kill, and opened as a follower's

RoleChanges performs one change of role at a time. Belongs to the event loop.
"""

import asyncio
import contextlib
import sys
from collections.abc import Iterator

import structlog

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.name_server.advertisement import Advertisement
from rockhopper.broker.replication.election.campaigning import WITHOUT_LOSS
from rockhopper.broker.replication.election.operating import forget
from rockhopper.broker.replication.election.replica_disk import ReplicaDisk, boot_id
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.engines.engine import Engine
from rockhopper.broker.replication.roles import set_status
from rockhopper.broker.replication.roles.alarms import (
    UNWRITABLE,
)
from rockhopper.broker.replication.roles.client_ports import ClientPorts, HandedOffConnections
from rockhopper.broker.replication.roles.replica_store import ReplicaStore
from rockhopper.broker.replication.roles.role_changes import RoleChanges
from rockhopper.broker.replication.roles.set_watch import SetWatch, floor_in_force
from rockhopper.broker.replication.roles.store_period import OpenAs, StorePeriod
from rockhopper.broker.replication.shipping.membership import Membership
from rockhopper.broker.replication.shipping.replica import RunningReplica, now_ms
from rockhopper.broker.settings.replica_config import HaMode
from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import (
    DeposedError,
    NotReplicatedError,
    StoreError,
)
from rockhopper.broker.store.files.lock_file import was_left_in_use
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.store.safe_point import StoreListener

log = structlog.get_logger("broker.ha")

LOOK_INTERVAL_S = 0.05
SWITCH_TIMEOUT_S = 2.0
ASK_AGAIN_S = 0.25
BEHIND_BYTES_MAX = 1 << 20


class SwitchError(Exception):
    """The mastership was not handed over; the message gives the reason and the present state."""


class SetMember(StoreListener):
    """One replica, with the parts that serve while it leads."""

    def __init__(
        self,
        parts: BrokerCore,
        client_ports: ClientPorts,
        engine: Engine,
        open_as: OpenAs,
    ) -> None:
        self.parts = parts
        self._watch = SetWatch(
            now_ms, parts.config.replication.replicas, parts.config.replication.floor
        )
        self._client_ports = client_ports
        self._engine = engine
        self._open_as = open_as
        self._config = parts.config.replication
        self._is_sync_mode = self._config.mode is HaMode.SYNC
        self._replica_store = ReplicaStore(parts.config.store, self)
        self._replica: RunningReplica | None = None
        self._is_elected_without_loss = False
        self._replicated_offset = 0
        self._confirmed = asyncio.Event()
        self._roles = RoleChanges(self)
        self._period = self._make_period()
        self._looking: asyncio.TimerHandle | None = None
        self._is_telling = False
        self._handed_off: HandedOffConnections | None = None
        self.gate = LeaseGate(self._may_promise, self._config.slave_timeout_ms)
        """Holds back answers that acknowledge state until a new master would know that state."""

    def _may_promise(self) -> bool:
        """Return whether a master after this one would know the state that is acknowledged now.

        No other replica leads. In addition, either the followers have the latest changes; or the
        engine has confirmed since then that this replica leads, and no running replica has reported
        to the engine that it lost this master.
        """
        replica, writer = self._replica, self._period.writer
        if replica is None or writer is None or not replica.leads_alone:
            return False
        overdue_since_ms = writer.overdue_since_ms()
        if overdue_since_ms is None:
            return True
        vouched_at_ms = replica.vouched_at_ms
        return vouched_at_ms is not None and vouched_at_ms >= overdue_since_ms

    @property
    def replica(self) -> RunningReplica:
        """The running replica, which decides.

        Raises:
            SwitchError: this replica is still starting.
        """
        if self._replica is None or not self._replica.has_started:
            raise SwitchError("this replica is starting: try again in a moment")
        return self._replica

    @property
    def replicated_offset(self) -> int:
        """The offset that all in-sync replicas have reached, as far as this replica knows."""
        return self._replicated_offset

    @property
    def has_started(self) -> bool:
        """Whether ``replica`` is available."""
        return self._replica is not None and self._replica.has_started

    @property
    def is_serving(self) -> bool:
        """Whether this replica serves clients as a master."""
        return self._roles.leads_in > 0 and self._period.is_serving

    async def open(self, membership: Membership) -> None:
        """Open the store as a follower's, and join the set.

        Raises:
            StoreError: the store or this replica's durable state cannot be read.
            OSError: a file or a port cannot be opened.
            StartError: raised by the client ports.
        """
        config = self.parts.config
        is_lossy = config.store.flush_disk_type is FlushDiskType.ASYNC
        layout = StoreLayout.from_config(config.store)
        may_have_lost = is_lossy and was_left_in_use(layout.abort)
        await self._open_period(None)
        replica_disk = ReplicaDisk(layout.own / "ha")
        store = self.parts.store
        replica_disk.count_start(boot_id(), store.log.written_offset, may_have_lost=may_have_lost)
        self._replica = RunningReplica(
            membership,
            self._replica_store,
            replica_disk,
            self._engine,
            self,
            Timing(lease_ms=self._config.lease_ms, first_start_ms=self._config.first_start_ms),
        )
        await self._replica.start()
        self.confirm(self._replica.machine.replica_state.replicated_offset)
        self._roles.start()
        self._look()

    async def close(self) -> None:
        """Leave the set and close the store. Raises OSError if a table could not be saved."""
        if self._looking is not None:
            self._looking.cancel()
        self._confirmed.set()
        await self._roles.close()
        if self._replica is not None and self._period.writer is not None:
            # No follower would receive changes from now on.
            self._client_ports.hold_clients()
            self.parts.parts.stop()
            if self._replica.takes_sends:
                await self._end_the_lead()
        self._roles.leave()
        self.gate.close()
        is_store_closed = False
        try:
            await self._period.close()
            is_store_closed = True
        finally:
            if self._replica is not None:
                await self._replica.close(is_store_closed=is_store_closed)

    async def _end_the_lead(self) -> None:
        """Answer requests that wait for replication, if that takes at most two seconds."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(SWITCH_TIMEOUT_S):
                await self._all_is_confirmed()

    async def _all_is_confirmed(self) -> None:
        if self._period.writer is not None:
            await self._period.writer.stop()
        await self.parts.store.safe_point.wait(self.parts.store.log.written_offset)

    def advertisement(self) -> Advertisement:
        """Return the advertisement for name servers."""
        view = self.replica.machine.view if self.has_started else None
        state = view.state if view else None
        return Advertisement(
            replica_id=self._config.replica_id,
            leads_in=self._roles.leads_in,
            elected_in=state.epoch if state else 0,
            elected_id=state.master.id if state else 0,
            addresses={
                number: member.address for number, member in (view.members if view else {}).items()
            },
            shows_followers=self._config.register_slaves,
        )

    def why_not_ready(self) -> str | None:
        """Return why a load balancer should skip this replica; None if it leads or is in sync."""
        if why := self._watch.why_out(self._replica):
            return why
        if self._roles.leads_in:
            refusal = self.parts.store.refusal
            if refusal is None and not self.is_serving:
                return "this replica was elected and is about to serve"
            return str(refusal) if refusal else None
        if not self.has_started:
            return "this replica is starting"
        if not self._replica_store.is_following:
            return "this replica is changing its role"
        machine = self.replica.machine
        state = machine.view.state if machine.view else None
        if state is None:
            return self._watch.alarms.shown.get(UNWRITABLE, "no master is known yet")
        if problem := self.replica.disk_problem:
            return f"this replica cannot save its state: {problem}"
        if machine.replica_state.me not in state.in_sync:
            return f"replica {machine.replica_state.me.id} is not in sync"
        if not machine.is_led(now_ms()):
            return "this replica has not heard from a master for longer than a lease (haLeaseTtl)"
        return None

    def status(self) -> JsonObject:
        """Return the whole status for operators, as JSON values."""
        machine, shown = self.replica.machine, self._watch.alarms.shown
        return set_status.status(
            machine,
            self.replica.view,
            replicated_offset=self._replicated_offset,
            alarms=shown,
            notes=[text for text in self.replica.notes if text not in shown.values()],
            replica_count=self._config.replicas,
            holds_id=not self.replica.second_because,
        )

    def metrics(self) -> Iterator[Family]:
        """Return the metrics of the set; none while this replica is starting."""
        replica = self._replica
        if replica is None or not replica.has_started:
            return iter(())
        return self._watch.families(replica, self._replicated_offset)

    def ha_runtime_info(self) -> JsonObject:
        """Return RocketMQ's HARuntimeInfo."""
        machine = self.replica.machine
        return set_status.ha_runtime_info(machine, machine.view)

    def epoch_cache(self) -> JsonObject:
        """Return RocketMQ's EpochEntryCache."""
        config = self.parts.config
        broker_id = self.advertisement().broker_id
        machine = self.replica.machine
        return set_status.epoch_cache(machine, config.cluster_name, config.broker_name, broker_id)

    async def switch(self, target_id: int | None) -> int:
        """Hand the mastership over and return the new master's id.

        Meanwhile requests are held, and afterwards forwarded. *target_id* None: the follower with
        the longest log.

        Raises:
            SwitchError: no replica took over. This replica continues to lead, or another one is
            elected.
        """
        machine = self.replica.machine
        target_id = target_id or machine.best_successor()
        if not self._roles.leads_in:
            raise SwitchError("this replica does not lead: ask the master")
        if target_id is None:
            raise SwitchError("no other replica is in sync, so none can take over")
        try:
            behind_bytes = (
                machine.replica_state.log_end - machine.successor(target_id).acknowledgeable_offset
            )
        except ValueError as error:
            raise SwitchError(str(error)) from None
        if behind_bytes > BEHIND_BYTES_MAX:
            raise SwitchError(
                f"replica {target_id} is {behind_bytes} bytes behind: wait until it has caught up"
            )
        self._handed_off = self._client_ports.hold_clients()
        try:
            async with asyncio.timeout(SWITCH_TIMEOUT_S):
                await self._hand_over(target_id)
        except (TimeoutError, StoreError, ValueError) as error:
            why = str(error) or "it did not take over in time"
            self.replica.step_down(f"handing over to replica {target_id} failed: {why}")
            raise SwitchError(f"replica {target_id} did not take over: {why}") from None
        return target_id

    async def _hand_over(self, target_id: int) -> None:
        self.parts.parts.stop()
        await self._all_is_confirmed()
        # Repeat the request: the follower may be reconnecting.
        while not self._roles.deposed.is_set():
            with contextlib.suppress(ValueError):
                self.replica.hand_over(target_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_AGAIN_S):
                    await self._roles.deposed.wait()

    async def elect_unclean(self) -> None:
        """Lead although messages may be lost. Raises SwitchError."""
        try:
            self.replica.lead_by_operator()
        except ValueError as error:
            raise SwitchError(str(error)) from None

    @property
    def continues_history(self) -> bool:
        """Whether the log contains everything that an earlier master of the set has shown."""
        return self._is_sync_mode and self._is_elected_without_loss

    async def reseed(self) -> None:
        """Replace this replica's store by its master's. Raises SwitchError."""
        try:
            self.replica.reseed()
        except ValueError as error:
            raise SwitchError(str(error)) from None
        self._watch.operator_decided()

    def forget(self, replica_id: int) -> str:
        """Return the confirmation for an operator who removes a replica. Raises SwitchError."""
        try:
            forget(self.replica.machine.view, replica_id)
        except ValueError as error:
            raise SwitchError(str(error)) from None
        return f"replica {replica_id} is no longer in a set, so no master waits for it"

    # Events from the machine.

    def lead(self, epoch: int) -> None:
        """See ReplicaOwner."""
        machine = self.replica.machine
        state = machine.view.state if machine.view else None
        self._is_elected_without_loss = state is not None and state.why_elected in WITHOUT_LOSS
        self._watch.elected(machine)
        self._roles.elect(epoch)

    def resign(self, why: str) -> None:
        """See ReplicaOwner."""
        self._roles.depose()
        self._watch.resigned()
        self._replica_store.is_following = False
        self.gate.refuse(NotReplicatedError(f"this broker no longer leads its set: {why}"))
        self.parts.store.depose(DeposedError(f"this broker no longer leads its set: {why}"))
        self._roles.request()
        self._confirmed.set()
        self._client_ports.advertisement_changed()

    def confirm(self, offset: int) -> None:
        """See ReplicaOwner."""
        self._replicated_offset = max(self._replicated_offset, offset)
        self._confirmed.set()
        if self._replica_store.is_following:
            self._period.follow_to(self._replicated_offset)
        elif self._roles.leads_in and self._is_sync_mode:
            self.parts.store.safe_point.confirm(offset)
            self.gate.look()

    def require_operator(self, why: str) -> None:
        """See ReplicaOwner."""
        self._watch.require_operator(why)

    def replication_stopped(self, why: str) -> None:
        """See ReplicaOwner."""
        self._watch.replication_stopped(why)

    # Role changes.

    async def promote(self, epoch: int) -> None:
        """See RolePlayer."""
        store = self.parts.store
        end = store.log.written_offset
        while self._is_sync_mode and self._replicated_offset < end and self._roles.is_wanted(epoch):
            self._confirmed.clear()
            await self._confirmed.wait()
        if not self._roles.is_wanted(epoch):
            return
        await self._period.finish_following(end)
        if not self._roles.is_elected(epoch):
            return
        self._replica_store.is_following = False
        store.lead()
        store.safe_point.replicate(self._known_safe(), self._config.slave_timeout_ms)
        self._roles.enter(epoch)
        self.gate.hold_responses()
        self._look_once()
        await self._period.serve(self.replica)
        self._client_ports.advertisement_changed()
        log.info("serving as the master", id=self._config.replica_id, epoch=epoch, log_end=end)

    def _known_safe(self) -> int:
        return self._replicated_offset if self._is_sync_mode else sys.maxsize

    async def demote(self) -> None:
        """See RolePlayer."""
        self._roles.leave()
        handed_off, self._handed_off = self._handed_off, None
        if handed_off is not None:
            handed_off.leave()
            await self._client_ports.pass_on(handed_off, self)
        else:
            self._client_ports.hold_clients()
        await self._period.close()
        await self._open_period(None)

    def give_up(self) -> None:
        """See RolePlayer."""
        self._client_ports.cannot_go_on()

    def master_address(self) -> str:
        """Return the address of the master; blank if there is none, or it is this replica."""
        view = self.replica.machine.view
        state = view.state if view else None
        if view is None or state is None or state.master.id == self._config.replica_id:
            return ""
        master = view.members.get(state.master.id)
        return master.address if master else ""

    # The store.

    def _make_period(self) -> StorePeriod:
        return StorePeriod(self.parts, self._client_ports, self._replica_store, self._roles)

    async def _open_period(self, cut_at: int | None) -> None:
        self._period = self._make_period()
        await self._period.open(self._open_as, cut_at)
        self.parts.store.listeners.add(self)
        self._roles.follow()
        self._period.follow_to(self._replicated_offset)
        self.store_flushed()

    async def reopen(self, *, cut_at: int | None = None, begin_at: int | None = None) -> None:
        """See StoreOwner."""
        async with self._roles.in_turn:
            if not self._roles.is_closing:
                await self._reopen_now(cut_at, begin_at)
                return
        # The caller ends with this replica; the next start repeats the request.
        await asyncio.get_running_loop().create_future()

    async def _reopen_now(self, cut_at: int | None, begin_at: int | None) -> None:
        self._replica_store.is_following = False
        self._roles.leave()
        self.parts.store.depose(DeposedError("this replica's log is being cut"))
        await self._period.close()
        if cut_at is not None:
            self._watch.cut(self._replica_store.end_offset - cut_at)
            self._replicated_offset = min(self._replicated_offset, cut_at)
        if begin_at is not None:
            self._watch.seeded()
            self._replicated_offset = 0
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._replica_store.replace, begin_at)
        await self._open_period(cut_at)

    def store_flushed(self) -> None:
        """See StoreListener."""
        if self.has_started:
            self.store_written()

    def store_written(self) -> None:
        """Notify the replica soon, once for everything written in one iteration of the loop."""
        if not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        self.replica.wrote()
        if self._roles.leads_in and not self._is_sync_mode:
            self.parts.store.safe_point.moved()

    def _look(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look)
        self._look_once()
        self.gate.look()
        self._watch.look(self.replica)

    def _look_once(self) -> None:
        if not self._roles.leads_in:
            return
        self.parts.store.refusal = None
        if not self.replica.takes_sends:
            floor = floor_in_force(self.replica.machine)
            self.parts.store.refusal = NotReplicatedError(
                "in-sync replicas not enough: nothing is stored until "
                f"minInSyncReplicas={floor} of this set's replicas are in sync"
            )
