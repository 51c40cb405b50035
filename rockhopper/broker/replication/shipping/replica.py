"""A running replica: passes events to its machine and performs the machine's actions.

All calls of the machine are made in the event loop's thread. ``DiskActions`` performs the disk
writes that the machine waits for, ``OpenLinks`` holds the connections, and ``SetPresence`` this
replica's entry in the engine. The requests of ``EngineActions`` run beside each other.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import uniform
from typing import Any, Protocol

import structlog

from rockhopper.broker.replication.election import actions, wire
from rockhopper.broker.replication.election.epochs import cut
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.messages import Beat, Hello, Refused, Welcome
from rockhopper.broker.replication.election.replica_disk import COPIED, RESTORED, ReplicaDisk
from rockhopper.broker.replication.election.replica_set import Announcement, SetView
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.election.wire import WireError
from rockhopper.broker.replication.engines.engine import Engine
from rockhopper.broker.replication.shipping.clock_difference import ClockDifference
from rockhopper.broker.replication.shipping.disk_actions import DiskAction, DiskActions
from rockhopper.broker.replication.shipping.engine_actions import EngineAction, EngineActions
from rockhopper.broker.replication.shipping.engine_health import EngineHealth
from rockhopper.broker.replication.shipping.link import Link
from rockhopper.broker.replication.shipping.membership import Membership
from rockhopper.broker.replication.shipping.open_links import OpenLinks
from rockhopper.broker.replication.shipping.replica_log import AwayError, ReplicaLog
from rockhopper.broker.replication.shipping.role_log import RoleLog
from rockhopper.broker.replication.shipping.set_presence import SetPresence
from rockhopper.broker.replication.shipping.streams import Streams
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.tasks import start_task

log = structlog.get_logger("broker.ha")

TICK_S = 0.05
ANNOUNCE_LOOK_S = 1.0


def now_ms() -> int:
    """Return the time of a monotonic clock that also advances while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def wall_ms() -> int:
    """Return this machine's wall-clock time."""
    return time.time_ns() // 1_000_000


class ReplicaOwner(Protocol):
    """Does the work of a replica's role. It is called in the event loop's thread."""

    def lead(self, epoch: int) -> None:
        """Start a master's work in this epoch."""

    def resign(self, why: str) -> None:
        """Stop a master's work for this reason."""

    def confirm(self, offset: int) -> None:
        """Show consumers, and acknowledge, the log before this offset."""

    def require_operator(self, why: str) -> None:
        """Take no part: this replica's log contradicts its master's."""

    def replication_stopped(self, why: str) -> None:
        """Take no part: a bug has stopped replication, and only a restart helps."""


class RunningReplica:
    """One replica of a set, from ``start`` to ``close``."""

    def __init__(
        self,
        membership: Membership,
        replica_log: ReplicaLog,
        replica_disk: ReplicaDisk,
        engine: Engine,
        owner: ReplicaOwner,
        timing: Timing | None = None,
        now: Callable[[], int] = now_ms,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        """*replica_disk* must already have counted this start."""
        self._membership = membership
        self._log = replica_log
        self._replica_disk = replica_disk
        self._owner = owner
        self._timing = timing or Timing()
        self._now_ms = now
        self._links = OpenLinks(membership, self, now)
        self._streams = Streams(replica_log, self._beat)
        self._tasks: set[asyncio.Task[None]] = set()
        self._disk_actions = DiskActions(replica_disk, replica_log, now)
        self.engine_health = EngineHealth(now)
        self._presence = SetPresence(
            membership.id, replica_disk, replica_log, engine, self.engine_health, now
        )
        self._engine_actions = EngineActions(engine, self._presence, self.engine_health, now)
        self.clock = ClockDifference(now, wall)
        self._machine: Machine | None = None

    @property
    def machine(self) -> Machine:
        """The state machine; available from ``start`` on."""
        assert self._machine is not None
        return self._machine

    @property
    def has_started(self) -> bool:
        """Whether ``machine`` is available."""
        return self._machine is not None

    @property
    def ha_address(self) -> str:
        """The address for other replicas; available from ``start`` on."""
        return self._links.address

    @property
    def disk_problem(self) -> str:
        """Why this replica's durable state cannot be written now; the write is being retried."""
        return self._disk_actions.problem

    @property
    def second_because(self) -> str:
        """Why this replica stays out: another process has the same id. Blank if none has."""
        return self._presence.second_because

    @property
    def view(self) -> SetView | None:
        """The last view of the set, even if this replica has not joined it yet."""
        return self.machine.view or self._presence.seen_view

    @property
    def notes(self) -> list[str]:
        """Temporary conditions of this replica for an operator, besides alarms."""
        second = [self.second_because] if self.second_because else []
        return second + self._links.refusals.sentences

    @property
    def takes_sends(self) -> bool:
        """Whether new messages may be stored."""
        return self._machine is not None and self._machine.takes_sends(self._now_ms())

    @property
    def leads_alone(self) -> bool:
        """Whether this replica leads and no other can have been elected since."""
        return self._machine is not None and self._machine.leads_alone(self._now_ms())

    @property
    def vouched_at_ms(self) -> int | None:
        """When the engine last vouched for this master, even if its followers are silent.

        None: a silent follower could become leader. A renewal proves nothing about the time shortly
        before it, in which a replica that lost its master had not yet told the engine.
        """
        machine = self.machine
        if machine.may_be_replaced(self._now_ms()):
            return None
        return machine.renewed_at_ms - self._timing.missed_ms

    async def start(self) -> None:
        """Listen, complete a truncation that a crash interrupted, and join the set.

        Raises:
            OSError: the port cannot be opened.
        """
        membership, replica_disk = self._membership, self._replica_disk
        await self._disk_actions.complete_truncation()
        await self._links.listen()
        self._machine = Machine(
            ReplicaState(
                self._presence.me,
                self._presence.incarnation,
                priority=membership.priority,
                voted_epoch=replica_disk.voted_epoch,
                epochs=replica_disk.epochs,
                seen_state=replica_disk.seen_state,
                is_clean=replica_disk.is_clean,
                is_fenced=replica_disk.left is not None,
                has_left=replica_disk.left is not None,
                log_start=self._log.start_offset,
                log_end=self._log.end_offset,
                acknowledgeable_offset=self._log.acknowledgeable_offset,
                replicated_offset=min(replica_disk.replicated_offset, self._log.end_offset),
            ),
            self._timing,
            min_in_sync=membership.min_in_sync,
            now_ms=self._now_ms(),
            spread=lambda: uniform(-1, 1),
            replicas_after_power_cut=membership.replicas_after_power_cut,
        )
        self._disk_actions.attach(self._machine)
        self._links.attach(self._machine)
        self._role_log = RoleLog(self._machine)
        self._spawn(self._take_part())

    async def close(self, *, is_store_closed: bool = False) -> None:
        """Release the lease and close every connection.

        With *is_store_closed*, this process withdraws its announcement, so that its successor on
        another machine need not wait. An engine that does not answer delays this by one second.
        """
        await self._links.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._links.wait_closed()
        answers = True
        if self._machine and (term := self._machine.term):
            answers = await self._engine_actions.resign_finally(term.epoch)
        self._disk_actions.save_replicated_offset()
        self._disk_actions.close()
        await self._engine_actions.close(withdraws=is_store_closed and answers)

    def wrote(self) -> None:
        """Report the log's end to the machine; a master also sends new data to its followers."""
        self.machine.wrote(self._log.end_offset, self._log.acknowledgeable_offset)
        self.perform()
        self._streams.wrote()

    def hand_over(self, replica_id: int) -> None:
        """See Machine."""
        self.machine.hand_over(replica_id)
        self.perform()

    def step_down(self, why: str) -> None:
        """See Machine."""
        self.machine.step_down(why, self._now_ms())
        self.perform()

    def lead_by_operator(self) -> None:
        """See Machine."""
        self.machine.lead_by_operator(self._now_ms())
        self.perform()

    def reseed(self) -> None:
        """See Machine."""
        self.machine.reseed()
        self.perform()

    # Taking part in the set.

    async def _take_part(self) -> None:
        while True:
            is_copy = await self._presence.claim()
            is_latest = await self._presence.count_start()
            if (is_copy or not is_latest) and self._replica_disk.is_clean:
                await self._disk_actions.mark_unclean(COPIED if is_copy else RESTORED)
            is_replaced = asyncio.Event()
            work = (self._watch(is_replaced), self._announce(), self._tick())
            tasks = [self._spawn(each) for each in work]
            await is_replaced.wait()
            for task in tasks:
                task.cancel()
            self._leave_to_other()

    def _leave_to_other(self) -> None:
        """Stop receiving and acknowledging under an id that another process has."""
        self.machine.yield_to_other(self._now_ms())
        self.perform()
        self._links.close_all()

    async def _watch(self, is_replaced: asyncio.Event) -> None:
        async for view in self._presence.views():
            self._links.close_replaced(view)
            self._look_at_log()
            self.machine.saw(view, self._now_ms())
            self.perform()
        is_replaced.set()

    async def _tick(self) -> None:
        while True:
            self._look_at_log()
            self.machine.tick(self._now_ms())
            self.perform()
            await asyncio.sleep(TICK_S)

    async def _announce(self) -> None:
        while True:
            self._disk_actions.save_replicated_offset()
            await self._presence.announce(self._announcement())
            await asyncio.sleep(ANNOUNCE_LOOK_S)

    def _announcement(self) -> Announcement:
        replica_state = self.machine.replica_state
        epochs = cut(replica_state.epochs, replica_state.log_end)
        return Announcement(
            self._presence.me,
            self._presence.incarnation,
            address=self._membership.address,
            ha_address=self._links.address,
            last_epoch=epochs[-1].number if epochs else 0,
            log_end=replica_state.log_end,
            is_clean=replica_state.is_clean,
            priority=self._membership.priority,
            seen_state=replica_state.seen_state,
            misses_master=self.machine.misses_master(self._now_ms()),
            settings=self._membership.settings,
            own_address=self._membership.own_address,
        )

    # Connections.

    def greeted(self, link: Link, hello: Hello) -> None:
        """See LinkUser."""
        self._look_at_log()
        self.machine.received(link.number, hello, self._now_ms())
        self.perform()

    def _look_at_log(self) -> None:
        """Update the log's start.

        Retention moves it without notice, and deleted parts cannot be sent.
        """
        replica_state = self.machine.replica_state
        replica_state.log_start, replica_state.is_away = self._log.start_offset, self._log.is_away

    def lost(self, link: Link, *, is_news: bool) -> None:
        """See LinkUser."""
        self._streams.closed(link.number)
        if is_news:
            self.machine.closed(link.number, self._now_ms())
            self._forget_torn()
            self.perform()

    def _forget_torn(self) -> None:
        """Drop an incomplete record: without a master its rest does not come."""
        if self.machine.following.link is None:
            self._log.drop_torn()

    def received(self, link: Link, frame: wire.Frame) -> None:
        """See FrameReceiver."""
        if link.number not in self._links.by_number:
            return
        match frame:
            case wire.LogData():
                self._take(link, frame)
            case wire.Greeting() | wire.Challenge() | wire.Proof():
                raise WireError("a greeting in the middle of a connection")
            case _:
                self._look_at_answer(link, frame)
                self.machine.received(link.number, frame, self._now_ms())
        self.perform()

    def _look_at_answer(self, link: Link, frame: wire.Frame) -> None:
        """Record the master's time, and its refusal or acceptance of this replica."""
        following = self.machine.following
        if following.master is None or link.number != following.link:
            return
        master = f"replica {following.master.id}"
        if isinstance(frame, Beat):
            if frame.sent_at_ms:
                self.clock.beat(frame.sent_at_ms)
        elif isinstance(frame, Welcome):
            self._links.refusals.clear(master)
        elif isinstance(frame, Refused) and not frame.voted_epoch:
            self._links.refusals.note("the master refuses this replica", master, frame.why)

    def _take(self, link: Link, data: wire.LogData) -> None:
        if not self.machine.takes(link.number, data.beat.epoch):
            return
        if data.log_offset != self._log.next_offset:
            raise WireError(
                f"log bytes for offset {data.log_offset:,}, but the log ends at "
                f"{self._log.next_offset:,}"
            )
        try:
            self._log.append(data.log_offset, data.log_bytes)
        except AwayError:
            link.close()
            return
        except (StoreError, OSError) as error:
            log.error("the master's log cannot be appended", reason=str(error))
            link.close()
            return
        # Send one acknowledgement for both the log and the heartbeat in the same frame.
        replica_state = self.machine.replica_state
        replica_state.log_end, replica_state.acknowledgeable_offset = (
            self._log.end_offset,
            self._log.acknowledgeable_offset,
        )
        self.machine.received(link.number, data.beat, self._now_ms())

    # Actions.

    def perform(self) -> None:
        """See LinkUser."""
        todo = self.machine.actions
        while todo:
            taken, todo[:] = list(todo), []
            for action in taken:
                self._do(action)
        if self.machine.term is None:
            self._role_log.look()

    def _do(self, action: actions.Action) -> None:
        match action:
            case actions.SendMessage():
                self._send(action)
            case actions.Close():
                if self._links.close_link(action.link):
                    self._forget_torn()
            case actions.Confirm():
                self._owner.confirm(action.offset)
            case actions.Lead() | actions.Resign() | actions.Release() | actions.Alarm():
                self._change_role(action)
            case actions.Open():
                self._spawn(self._links.connect(action.replica_id))
            case actions.StreamLog():
                self._spawn(self._stream(action))
            case actions.Campaign() | actions.Alter() | actions.Renew() | actions.Read():
                self._spawn(self._ask(action))
            case _:
                self._spawn(self._write(action))

    def _send(self, action: actions.SendMessage) -> None:
        link, message = self._links.by_number.get(action.link), action.message
        if link is None or isinstance(message, Hello):
            return
        if isinstance(message, Beat):
            message = replace(message, sent_at_ms=self.clock.wall_ms())
        link.send(wire.encode(message))

    def _change_role(
        self, action: actions.Lead | actions.Resign | actions.Release | actions.Alarm
    ) -> None:
        match action:
            case actions.Release():
                self._spawn(self._engine_actions.release(action.epoch))
            case actions.Lead():
                self._role_log.elected(action.epoch)
                self._owner.lead(action.epoch)
            case actions.Resign():
                self._role_log.resigned(action.epoch, action.why)
                self._owner.resign(action.why)
            case actions.Alarm():
                log.critical("this replica needs an operator", reason=action.text)
                self._owner.require_operator(action.text)

    async def _ask(self, action: EngineAction) -> None:
        await self._engine_actions.perform(action, self.machine)
        self.perform()

    async def _write(self, action: DiskAction) -> None:
        await self._disk_actions.perform(action)
        self.perform()

    async def _stream(self, action: actions.StreamLog) -> None:
        if link := self._links.by_number.get(action.link):
            try:
                await self._streams.serve(link, action.start_offset, action.epoch)
            except (StoreError, OSError) as error:
                log.error("the log cannot be read for a follower", reason=str(error))
                link.close()

    def _beat(self) -> Beat | None:
        term = self.machine.term
        return Beat(term.epoch, term.replicated_offset) if term else None

    # Tasks.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = start_task(work)
        self._tasks.add(task)
        task.add_done_callback(self.task_ended)
        return task

    def task_ended(self, task: "asyncio.Task[None]") -> None:
        """See LinkUser."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._disk_actions.fail()
            self._owner.replication_stopped(
                f"replication has stopped: {error!r}; restart this broker"
            )
            log.critical("replication has stopped", exc_info=error)
