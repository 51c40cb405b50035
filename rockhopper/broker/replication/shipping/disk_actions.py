"""DiskActions: performs the machine's actions that write to disk before the machine continues.

A thread performs the writes in the order of the actions. Each one is retried until the disk accepts
it, because later ones depend on it. Meanwhile this replica cannot be elected.

    truncate   1  cutting.json    a start that finds it repeats the truncation
               2  the log is cut
               3  epochs.json     the epochs of the shorter log
               4  cutting.json is removed
    seed       1  unclean.json    messages may be missing until the master confirms the log
               2  the log is set aside, and begins anew
               3  epochs.json     the master's epochs
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_disk import SEEDING, ReplicaDisk
from rockhopper.broker.replication.election.replica_set import NOTHING_SEEN
from rockhopper.broker.replication.engines.consensus.complaints import Complaints
from rockhopper.broker.replication.shipping.replica_log import ReplicaLog
from rockhopper.broker.store.files.errors import StoreError

DISK_PAUSE_S = 0.5

DiskAction = (
    actions.StoreVotedEpoch
    | actions.NoteSeenState
    | actions.EnterEpoch
    | actions.Cut
    | actions.NoteClean
    | actions.GiveUp
)
"""The actions that write to disk before the machine continues."""


class DiskActions:
    """The durable writes of one replica, and its log's truncation. Belongs to the event loop."""

    def __init__(
        self, replica_disk: ReplicaDisk, replica_log: ReplicaLog, now_ms: Callable[[], int]
    ) -> None:
        self._replica_disk = replica_disk
        self._log = replica_log
        self._now_ms = now_ms
        self._machine: Machine | None = None
        self._thread = ThreadPoolExecutor(1, "replica-disk")
        self._in_order = asyncio.Lock()
        self._failing_count = 0
        self._error = ""
        self._complaints = Complaints()

    @property
    def machine(self) -> Machine:
        """The machine whose actions these are; available from ``attach`` on."""
        assert self._machine is not None
        return self._machine

    def attach(self, machine: Machine) -> None:
        """Report results, and a disk that fails, to *machine* from now on."""
        self._machine = machine

    @property
    def problem(self) -> str:
        """Why this replica's durable state cannot be written now; the write is being retried."""
        return self._error if self._failing_count else ""

    async def complete_truncation(self) -> None:
        """Repeat a truncation that a crash interrupted."""
        replica_disk = self._replica_disk
        if replica_disk.cutting is not None:
            await self._cut_to(replica_disk.cutting, replica_disk.epochs)

    async def perform(self, action: DiskAction) -> None:
        """Perform an action after all earlier ones, and report its result to the machine."""
        async with self._in_order:
            await self._perform_now(action)

    async def _perform_now(self, action: DiskAction) -> None:
        machine, replica_disk = self.machine, self._replica_disk
        match action:
            case actions.StoreVotedEpoch():
                await self._in_thread(replica_disk.note_voted_epoch, action.epoch)
                machine.voted_epoch_stored(action.epoch, self._now_ms())
            case actions.NoteSeenState():
                await self._in_thread(replica_disk.note_seen_state, action.seen_state)
            case actions.EnterEpoch():
                await self._in_thread(replica_disk.note_epochs, action.epochs)
                await self._in_thread(replica_disk.note_joined)
                machine.replica_state.is_fenced = machine.replica_state.has_left = False
                machine.entered(self._now_ms())
            case actions.Cut(seed=True):
                await self._begin_at(action.end_offset, action.epochs)
                machine.replica_state.is_clean = False
                self._report_cut(action.epochs)
            case actions.Cut():
                if action.end_offset < self._log.end_offset:
                    await self._cut_to(action.end_offset, action.epochs)
                else:
                    await self._in_thread(replica_disk.note_epochs, action.epochs)
                self._report_cut(action.epochs)
            case actions.GiveUp():
                await self._in_thread(replica_disk.note_unclean, self._log.end_offset, SEEDING)
                await self._in_thread(replica_disk.note_epochs, ())
                await self._in_thread(replica_disk.note_seen_state, NOTHING_SEEN)
                await self._in_thread(replica_disk.note_joined)
            case actions.NoteClean():
                await self._in_thread(replica_disk.note_clean)
                machine.noted_clean()

    def _report_cut(self, epochs: tuple[Epoch, ...]) -> None:
        replica_state = self.machine.replica_state
        is_awaited = self.machine.following.awaits_cut(epochs)
        replica_state.epochs, replica_state.log_start = epochs, self._log.start_offset
        self.machine.log_is_cut(self._log.end_offset, is_awaited=is_awaited)

    async def _cut_to(self, end_offset: int, epochs: tuple[Epoch, ...]) -> None:
        replica_disk = self._replica_disk
        await self._in_thread(replica_disk.note_cutting, end_offset)
        await self._until_it_is_done(lambda: self._log.cut(end_offset))
        await self._in_thread(replica_disk.note_epochs, epochs)
        await self._in_thread(replica_disk.note_cut)

    async def _begin_at(self, offset: int, epochs: tuple[Epoch, ...]) -> None:
        replica_disk = self._replica_disk
        await self._in_thread(replica_disk.note_unclean, self._log.end_offset, SEEDING)
        await self._until_it_is_done(lambda: self._log.begin_at(offset))
        await self._in_thread(replica_disk.note_epochs, epochs)

    async def mark_unclean(self, why: str) -> None:
        """Note on disk, and in the machine, that acknowledged messages may be missing here."""
        await self._in_thread(self._replica_disk.note_unclean, self._log.end_offset, why)
        self.machine.replica_state.is_clean = False

    def save_replicated_offset(self) -> None:
        """Write the replicated offset, if it changed, without waiting for the write."""
        if self._machine is None:
            return
        replicated_offset = self._machine.replica_state.replicated_offset
        if replicated_offset != self._replica_disk.replicated_offset:
            self._thread.submit(self._replica_disk.note_confirmed, replicated_offset)

    def fail(self) -> None:
        """Note that this replica can no longer replicate: it may not lead until it restarts."""
        self._count_failing(1)

    def close(self) -> None:
        """Complete the writes that have begun."""
        self._thread.shutdown(wait=True)

    async def _in_thread(self, function: Callable[..., object], *arguments: object) -> None:
        loop = asyncio.get_running_loop()
        await self._until_it_is_done(
            lambda: loop.run_in_executor(self._thread, function, *arguments)
        )

    async def _until_it_is_done(self, work: Callable[[], Awaitable[object]]) -> None:
        is_failing = False
        try:
            while True:
                try:
                    await work()
                    return
                except (StoreError, OSError) as error:
                    self._error = str(error)
                    self._complaints.tell("a file of this replica", str(error))
                if not is_failing:
                    is_failing = True
                    self._count_failing(1)
                await asyncio.sleep(DISK_PAUSE_S)
        finally:
            if is_failing:
                self._count_failing(-1)

    def _count_failing(self, change: int) -> None:
        self._failing_count += change
        if self._machine:
            self._machine.replica_state.is_failing = self._failing_count > 0
