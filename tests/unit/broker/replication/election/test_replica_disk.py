"""What a replica must not forget is on its disk, and damage to it is told."""

from pathlib import Path

import pytest

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.replica_disk import (
    POWER_CUT,
    SEEDING,
    ReplicaDisk,
    boot_id,
)
from rockhopper.broker.replication.election.replica_set import SeenState
from rockhopper.broker.store.files.errors import CorruptFileError

EPOCHS = (Epoch(1, 0), Epoch(4, 900))


def test_a_new_replica_has_an_identity_of_its_own(tmp_path: Path) -> None:
    one, another = ReplicaDisk(tmp_path / "one"), ReplicaDisk(tmp_path / "another")
    assert len(one.store) == 32
    assert one.store != another.store
    assert (one.voted_epoch, one.epochs, one.starts, one.cutting, one.is_clean) == (
        0,
        (),
        0,
        None,
        True,
    )


def test_everything_is_there_after_a_start(tmp_path: Path) -> None:
    replica_disk = ReplicaDisk(tmp_path / "ha")
    replica_disk.count_start("boot", 100, may_have_lost=False)
    replica_disk.note_voted_epoch(4)
    replica_disk.note_epochs(EPOCHS)
    replica_disk.note_cutting(950)
    replica_disk.note_unclean(960, SEEDING)
    replica_disk.note_confirmed(940)
    replica_disk.note_seen_state(SeenState(7, 11))
    again = ReplicaDisk(tmp_path / "ha")
    assert (again.store, again.starts) == (replica_disk.store, 1)
    assert (again.voted_epoch, again.epochs, again.cutting) == (4, EPOCHS, 950)
    assert (again.unclean_because, again.replicated_offset) == (SEEDING, 940)
    assert again.seen_state == SeenState(7, 11)


def test_marks_can_be_taken_away(tmp_path: Path) -> None:
    replica_disk = ReplicaDisk(tmp_path)
    replica_disk.note_cutting(950)
    replica_disk.note_unclean(960, SEEDING)
    replica_disk.note_cut()
    replica_disk.note_clean()
    again = ReplicaDisk(tmp_path)
    assert (again.cutting, again.is_clean) == (None, True)


@pytest.mark.parametrize(
    ("boot", "may_have_lost", "is_clean"),
    [("second", True, False), ("first", True, True), ("second", False, True)],
)
def test_a_replica_may_have_lost_its_tail_if_its_machine_went_down_under_it(
    tmp_path: Path, boot: str, may_have_lost: bool, is_clean: bool
) -> None:
    ReplicaDisk(tmp_path).count_start("first", 100, may_have_lost=False)
    replica_disk = ReplicaDisk(tmp_path)
    assert replica_disk.count_start(boot, 90, may_have_lost=may_have_lost) == 2
    again = ReplicaDisk(tmp_path)
    assert again.is_clean is is_clean
    assert again.unclean_because == ("" if is_clean else POWER_CUT)


def test_each_start_is_counted_once(tmp_path: Path) -> None:
    counts = [ReplicaDisk(tmp_path).count_start("b", 0, may_have_lost=False) for _ in range(3)]
    assert counts == [1, 2, 3]


NAMES = [
    "replica.json",
    "promise.json",
    "epochs.json",
    "unclean.json",
    "cutting.json",
    "confirmed.json",
    "sight.json",
]
BAD = [b"", b"{}\n00000000\n", b"7\n2c6a8ef2\n", b"\0" * 50]


def write_all(replica_disk: ReplicaDisk) -> None:
    replica_disk.count_start("boot", 100, may_have_lost=False)
    replica_disk.note_voted_epoch(4)
    replica_disk.note_epochs(EPOCHS)
    replica_disk.note_cutting(950)
    replica_disk.note_unclean(960, SEEDING)
    replica_disk.note_confirmed(940)
    replica_disk.note_seen_state(SeenState(7, 11))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [*BAD, None])
@pytest.mark.parametrize("suffix", ["", ".bak"])
def test_one_of_two_copies_may_be_damaged_or_gone(
    tmp_path: Path, name: str, content: bytes | None, suffix: str
) -> None:
    write_all(ReplicaDisk(tmp_path))
    before = contents(tmp_path)
    path = tmp_path / f"{name}{suffix}"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    again = ReplicaDisk(tmp_path)
    assert (again.voted_epoch, again.epochs, again.cutting) == (4, EPOCHS, 950)
    assert (again.starts, again.unclean_because, again.replicated_offset) == (1, SEEDING, 940)
    assert again.seen_state == SeenState(7, 11)
    assert contents(tmp_path) == before


def test_a_copy_that_a_crash_left_behind_does_not_count(tmp_path: Path) -> None:
    replica_disk = ReplicaDisk(tmp_path)
    replica_disk.note_voted_epoch(4)
    older = (tmp_path / "promise.json.bak").read_bytes()
    replica_disk.note_voted_epoch(5)
    (tmp_path / "promise.json.bak").write_bytes(older)
    assert ReplicaDisk(tmp_path).voted_epoch == 5
    (tmp_path / "promise.json").write_bytes(b"")
    assert ReplicaDisk(tmp_path).voted_epoch == 5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", BAD)
def test_a_file_that_is_damaged_with_its_copy_is_refused_with_the_way_out(
    tmp_path: Path, name: str, content: bytes
) -> None:
    replica_disk = ReplicaDisk(tmp_path)
    replica_disk.count_start("b", 0, may_have_lost=False)
    for path in (tmp_path / name, tmp_path / f"{name}.bak"):
        path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=f"{name}: damaged: .* away"):
        ReplicaDisk(tmp_path)


def test_the_machine_tells_its_boot() -> None:
    assert boot_id() == boot_id()
