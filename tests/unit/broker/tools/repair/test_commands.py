import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rockhopper.broker.tools.repair import commands
from tests.support.rot import flip_bit
from tests.support.tool_stores import run


def test_every_command_says_what_it_does() -> None:
    shown = run("--help").out
    for name in ("check", "show", "dump", "rebuild", "repair", "backup", "restore"):
        assert name in shown
        assert run(name, "--help").code == 0


def test_permission_errors_are_sentences(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("repair", root, "--into", tmp_path / "file" / "new", "--write")
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "file exists" in ended.err


def test_a_log_that_is_divided_over_directories(root: Path, tmp_path: Path, config: Path) -> None:
    everything = run("dump", root).out
    second = tmp_path / "second"
    second.mkdir()
    (root / "commitlog" / f"{4096:020d}").rename(second / f"{4096:020d}")
    assert run("check", root).code == 1
    config.write_text(f"{config.read_text()}storePathCommitLog={root}/commitlog,{second}\n")
    assert run("check", root, "-c", config).out.endswith("Sound\n")
    assert run("dump", root, "-c", config).out == everything
    ended = run("rebuild", root, "-c", config, "--write")
    assert (ended.code, "store repair" in ended.err) == (1, True)
    one, other = tmp_path / "one", tmp_path / "other"
    assert run("repair", root, "--into", one, "-c", config, "--write").code == 0
    assert run("backup", root, tmp_path / "backup", "-c", config, "--write").code == 0
    assert run("restore", tmp_path / "backup", other, "--write").code == 0
    for new in (one, other):
        assert run("dump", new).out == everything
        assert run("check", new).code == 0


def _run_alone(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rockhopper.broker", "store", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.costly
def test_damage_is_told_by_the_command_and_not_logged(root: Path, tmp_path: Path) -> None:
    log = root / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:1500].ljust(1900, b"\xff") + log.read_bytes()[1900:])
    backup = tmp_path / "backup"
    ended = [
        _run_alone("backup", root, backup, "--write"),
        _run_alone("restore", backup, tmp_path / "restored", "--write"),
        _run_alone("repair", root, "--into", tmp_path / "repaired", "--write"),
        _run_alone("rebuild", root, "--write"),
    ]
    assert [each.stderr for each in ended] == [""] * 4
    assert [each.returncode for each in ended] == [1, 1, 0, 1]
    for told in (ended[0], ended[1], ended[3]):
        assert "The log is damaged in 1 place" in told.stdout


@pytest.fixture
def damaged(root: Path) -> Path:
    """The store, with one damaged message."""
    log = root / "commitlog" / f"{0:020d}"
    flip_bit(log, log.read_bytes().index(b"body 3"))
    return root


def test_a_restore_says_that_messages_in_the_backup_are_damaged(
    damaged: Path, tmp_path: Path
) -> None:
    run("backup", damaged, tmp_path / "backup", "--write")
    restored = run("restore", tmp_path / "backup", tmp_path / "new", "--write")
    assert restored.code == 1
    assert "The log is damaged in 1 place" in restored.out


@pytest.mark.parametrize(("named_max", "is_cut"), [(1, False), (0, True)])
def test_a_repair_names_the_first_lost_places_and_counts_the_others(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_max: int, is_cut: bool
) -> None:
    monkeypatch.setattr(commands, "_NAMED_MAX", named_max)
    ended = run("repair", damaged, "--into", tmp_path / "new")
    assert ended.out.count("log_offset=") == named_max
    assert ("… and 1 more: --report FILE or --json has all" in ended.out) == is_cut
    assert (" more: " in ended.out) == is_cut


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_nothing_is_written_without_write(root: Path, tmp_path: Path) -> None:
    before = contents(root)
    new, backup = tmp_path / "new", tmp_path / "backup"
    for command in (("rebuild", root), ("repair", root, "--into", new), ("backup", root, backup)):
        ended = run(*command)
        assert (ended.code, ended.out.splitlines()[-1]) == (
            0,
            "Nothing was written: add --write to do it",
        )
        assert run(*command, "--json").objects[0]["written"] is False
    assert contents(root) == before
    assert not new.exists()
    assert not backup.exists()


def test_a_rebuild_makes_the_queues_that_were_lost(root: Path) -> None:
    everything = run("show", root, "--json").objects[0]["topics"]
    shutil.rmtree(root / "consumequeue")
    wrong = run("rebuild", root, "--json").objects[0]["wrong"]
    assert wrong["queue"] > 0
    made = run("rebuild", root, "--write", "--json").objects[0]
    assert (made["written"], made["records"], made["damagedRanges"]) == (True, 60, 0)
    assert run("show", root, "--json").objects[0]["topics"] == everything
    assert run("check", root).code == 0


def test_a_report_of_what_was_lost_is_written_where_it_can_be(root: Path, tmp_path: Path) -> None:
    repair = ("repair", root, "--into", tmp_path / "new", "--write", "--report")
    refused = run(*repair, tmp_path / "missing" / "report.json")
    assert (refused.code, "cannot be written" in refused.err) == (1, True)
    assert not (tmp_path / "new").exists()
    assert run(*repair, tmp_path / "report.json").code == 0
    assert json.loads((tmp_path / "report.json").read_text())["lost"] == []


def test_a_backup_has_points_and_copies_only_what_is_new(root: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first, second = (run("backup", root, backup, "--write", "--json").objects[0] for _ in range(2))
    assert (first["point"], second["point"]) == (1, 2)
    assert (first["newBytes"] > 0, second["newBytes"]) == (True, 0)
    listed = run("restore", backup, tmp_path / "new", "--json").objects[0]
    assert (listed["written"], listed["chosen"]) == (False, 2)
    assert [each["point"] for each in listed["points"]] == [1, 2]
    assert not (tmp_path / "new").exists()


def test_a_damaged_backup_is_found_by_verify(root: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    assert run("backup", root, backup, "--write", "--verify").out.endswith("The backup is intact\n")
    largest = max((path for path in backup.rglob("*") if path.is_file()), key=_size)
    largest.write_bytes(b"\xff" * 100 + largest.read_bytes()[100:])
    ended = run("backup", root, backup, "--verify")
    assert (ended.code, "start a new backup" in ended.err) == (1, True)


def _size(path: Path) -> int:
    return path.stat().st_size


def test_a_log_with_a_gap_is_backed_up_only_if_asked_for(root: Path, tmp_path: Path) -> None:
    (root / "commitlog" / f"{4096:020d}").unlink()
    ended = run("backup", root, tmp_path / "backup", "--write")
    assert (ended.code, "--incomplete" in ended.err) == (1, True)
    run("backup", root, tmp_path / "backup", "--write", "--incomplete")
    restored = run("restore", tmp_path / "backup", tmp_path / "new", "--write")
    assert restored.code == 1
    assert "Not in the backup: the log from 4096 to 8192 is missing" in restored.out


def test_a_restore_needs_a_backup_and_an_empty_directory(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = run("restore", tmp_path / "empty", tmp_path / "new", "--write")
    assert (ended.code, "there is no backup in" in ended.err) == (1, True)
    run("backup", root, tmp_path / "backup", "--write")
    before = contents(root)
    assert run("restore", tmp_path / "backup", root, "--write").code == 1
    assert contents(root) == before
