import subprocess
import sys
from pathlib import Path

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
