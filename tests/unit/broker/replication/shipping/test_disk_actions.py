"""The machine's actions that write to disk: in order, and retried until the disk accepts them."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_disk import SEEDING, ReplicaDisk
from rockhopper.broker.replication.election.replica_set import Replica, SeenState
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.shipping import disk_actions
from rockhopper.broker.replication.shipping.disk_actions import DiskActions
from tests.support.replica_rig import MemoryLog
from tests.support.turns import until

EPOCHS = (Epoch(1, 0), Epoch(2, 4))


class Rig:
    """The disk, log and machine of one replica whose log has eight bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = ReplicaDisk(root)
        self.log = MemoryLog(data=bytearray(b"12345678"))
        state = ReplicaState(Replica(1, self.disk.store), "i1", log_end=8, acknowledgeable_offset=8)
        self.machine = Machine(state, Timing(), min_in_sync=1, now_ms=0, spread=lambda: 0)
        self.actions = DiskActions(self.disk, self.log, lambda: 0)

    def after_a_start(self) -> ReplicaDisk:
        """Return what the next process reads."""
        return ReplicaDisk(self.root)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "ha")
    rig.actions.attach(rig.machine)
    yield rig
    rig.actions.close()


async def test_a_cut_shortens_the_log_and_leaves_no_mark(rig: Rig) -> None:
    await rig.actions.perform(actions.Cut(5, EPOCHS))
    assert rig.log.data == b"12345"
    assert (rig.machine.replica_state.log_end, rig.machine.replica_state.epochs) == (5, EPOCHS)
    assert (rig.after_a_start().cutting, rig.after_a_start().epochs) == (None, EPOCHS)


async def test_a_cut_behind_the_end_writes_only_the_epochs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(MemoryLog, "cut")
    await rig.actions.perform(actions.Cut(8, EPOCHS))
    assert rig.after_a_start().epochs == EPOCHS


async def test_the_mark_of_a_truncation_is_on_disk_before_the_log_is_cut(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[int | None] = []

    async def cut(_log: MemoryLog, _end_offset: int) -> None:
        marks.append(rig.after_a_start().cutting)

    monkeypatch.setattr(MemoryLog, "cut", cut)
    await rig.actions.perform(actions.Cut(5, EPOCHS))
    assert marks == [5]


async def test_a_truncation_that_a_crash_interrupted_is_repeated_without_a_machine(
    tmp_path: Path,
) -> None:
    ReplicaDisk(tmp_path / "ha").note_cutting(3)
    rig = Rig(tmp_path / "ha")
    await rig.actions.complete_truncation()
    rig.actions.close()
    assert rig.log.data == b"123"
    assert rig.after_a_start().cutting is None


async def test_a_seed_is_marked_unclean_before_the_log_begins_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    begin_at = MemoryLog.begin_at

    async def begin(log: MemoryLog, offset: int) -> None:
        marks.append(rig.after_a_start().unclean_because)
        await begin_at(log, offset)

    monkeypatch.setattr(MemoryLog, "begin_at", begin)
    await rig.actions.perform(actions.Cut(4096, EPOCHS, seed=True))
    assert marks == [SEEDING]
    assert not rig.machine.replica_state.is_clean
    assert (rig.log.start_offset, rig.machine.replica_state.log_start) == (4096, 4096)


async def test_a_replica_that_gives_up_forgets_its_epochs(rig: Rig) -> None:
    rig.disk.note_epochs(EPOCHS)
    rig.disk.note_seen_state(SeenState(3, 4))
    rig.disk.note_left(8)
    await rig.actions.perform(actions.GiveUp())
    found = rig.after_a_start()
    assert (found.unclean_because, found.epochs, found.left) == (SEEDING, (), None)


async def test_a_mark_of_an_old_copy_is_on_disk_and_in_the_machine(rig: Rig) -> None:
    await rig.actions.mark_unclean("copied")
    assert rig.after_a_start().unclean_because == "copied"
    assert not rig.machine.replica_state.is_clean


async def test_the_replicated_offset_is_written_when_it_changes(rig: Rig) -> None:
    rig.machine.replica_state.replicated_offset = 7
    rig.actions.save_replicated_offset()
    rig.actions.close()
    assert rig.after_a_start().replicated_offset == 7


async def test_writes_keep_their_order_while_the_disk_fails(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_actions, "DISK_PAUSE_S", 0)
    write, is_full = ReplicaDisk.note_voted_epoch, True

    def note(disk: ReplicaDisk, epoch: int) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(disk, epoch)

    monkeypatch.setattr(ReplicaDisk, "note_voted_epoch", note)
    first = asyncio.create_task(rig.actions.perform(actions.StoreVotedEpoch(2)))
    second = asyncio.create_task(rig.actions.perform(actions.NoteSeenState(SeenState(3, 4))))
    await until(lambda: "No space left" in rig.actions.problem)
    assert not rig.machine.replica_state.may_lead
    assert not second.done()
    assert rig.disk.seen_state.changes == 0
    is_full = False
    await asyncio.gather(first, second)
    assert rig.actions.problem == ""
    assert rig.machine.replica_state.may_lead
    assert (rig.disk.voted_epoch, rig.disk.seen_state) == (2, SeenState(3, 4))


async def test_a_write_that_succeeds_at_last_does_not_hide_another_failure(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_actions, "DISK_PAUSE_S", 0)
    write, is_full = ReplicaDisk.note_voted_epoch, True

    def note(disk: ReplicaDisk, epoch: int) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(disk, epoch)

    monkeypatch.setattr(ReplicaDisk, "note_voted_epoch", note)
    vote = asyncio.create_task(rig.actions.perform(actions.StoreVotedEpoch(2)))
    await until(lambda: "No space left" in rig.actions.problem)
    rig.actions.fail()
    is_full = False
    await vote
    assert not rig.machine.replica_state.may_lead
