"""Machines without disks of their own; those with disks are made by the suite itself, as root."""

from pathlib import Path

import pytest

from tests.chaos.replicas.machines import Machine, switched_on


def test_a_machine_without_a_disk_has_a_directory(tmp_path: Path) -> None:
    with switched_on(tmp_path, (1, 2), has_disks=False, has_clocks=False) as machines:
        assert [machine.home for machine in machines.values()] == [
            tmp_path / "machine-1",
            tmp_path / "machine-2",
        ]
        assert all(not machine.environment for machine in machines.values())
        with pytest.raises(ValueError, match="no disk of its own"):
            machines[1].cut_power()


def test_each_machine_has_a_clock_and_a_boot_id(tmp_path: Path) -> None:
    with switched_on(tmp_path, (1, 2), has_disks=False, has_clocks=True) as machines:
        one, other = machines.values()
        assert one.clock
        assert one.environment["FAKETIME_TIMESTAMP_FILE"].startswith(str(tmp_path / "machine-1"))
        one.clock.set(90, 0.0)
        assert other.clock
        assert other.clock.offset_s == 0
        boots = [(tmp_path / f"machine-{number}" / "boot_id").read_text() for number in (1, 2)]
        assert boots[0] != boots[1]


def test_a_boot_id_is_shown_on_hosts_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one")
    assert machine.enter(()) == ()
    assert machine.enter(("ip", "netns"))[:3] == ("ip", "netns", "sh")
    assert machine.enter(("ip", "netns"))[-1] == str(tmp_path / "one" / "boot_id")


def test_a_disk_is_filled_and_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(ballast: Path, left_bytes: int) -> None:
        ballast.write_text(str(left_bytes))

    monkeypatch.setattr("tests.chaos.replicas.machines.fill", fill)
    machine = Machine(tmp_path / "one")
    machine.fill(7)
    machine.fill(8)
    assert (machine.home / "ballast").read_text() == "8"
    machine.free()
    machine.free()
    assert not (machine.home / "ballast").exists()
