"""A replica's store that is served alone."""

from pathlib import Path

import pytest

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.leaving import serve_alone
from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.store.files.errors import StoreError
from tests.support.replica_rig import ReplicaRig
from tests.support.turns import until


def test_a_store_that_was_in_no_set_is_served(tmp_path: Path) -> None:
    serve_alone(tmp_path / "ha", may_leave=False)
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_a_set_is_served_alone_once_that_was_decided(tmp_path: Path) -> None:
    ReplicaDisk(tmp_path).count_start("boot", 0, may_have_lost=False)
    ReplicaDisk(tmp_path).note_epochs((Epoch(3, 0),))
    with pytest.raises(StoreError, match="--leave-set"):
        serve_alone(tmp_path, may_leave=False)
    assert ReplicaDisk(tmp_path).epochs == (Epoch(3, 0),)
    serve_alone(tmp_path, may_leave=True)
    serve_alone(tmp_path, may_leave=False)
    assert (ReplicaDisk(tmp_path).left, ReplicaDisk(tmp_path).epochs) == (0, ())


async def test_back_in_its_set_nothing_of_it_is_cut_until_it_is_seeded(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, other = await rig.pair()
        await other.stop()
        await rig.complete(1)
        serve_alone(tmp_path / str(other.number), may_leave=True)
        other.log.data += b"taken alone"
        end = master.write(b"taken by the set meanwhile")
        await other.start()
        found = other.replica
        assert found
        await until(lambda: found.machine.view is not None and bool(found.machine.view.members))
        assert found.machine.replica_state.has_left
        assert bytes(other.log.data) == b"taken alone"
        assert not found.machine.replica_state.may_lead
        found.reseed()
        await rig.complete(2)
        await until(lambda: other.confirmed == end)
        assert other.log.data == master.log.data
        assert other.replica_disk
        assert other.replica_disk.left is None


async def test_a_store_that_left_may_begin_a_new_set(tmp_path: Path) -> None:
    ReplicaDisk(tmp_path / "1").note_left(0)
    async with ReplicaRig(tmp_path, 1) as rig:
        master = await rig.master()
        assert master.replica_disk
        assert master.replica_disk.left is None
