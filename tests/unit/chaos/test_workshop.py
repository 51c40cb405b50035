"""The suite of faults leaves nothing behind, and clears away what a killed run left."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.workshop import NEEDS, PREFIX, Workshop, missing


def test_a_workshop_is_gone_at_its_end(tmp_path: Path) -> None:
    with Workshop.opened(tmp_path) as workshop:
        (workshop.directory("store") / "file").write_text("x")
        with workshop.scratch("inner") as inner:
            assert inner.is_dir()
        assert not inner.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_goes_with_its_processes(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}killed"
    (left / "store").mkdir(parents=True)
    (left / "lock").touch()
    sleeping = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", sleeping, f"{left}/store"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Workshop.opened(tmp_path) as workshop:
            assert not left.exists()
            assert process.wait() < 0
            with Workshop.opened(tmp_path):
                assert workshop.root.is_dir()  # a run that lives is left alone


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDS, "root", (lambda: False, "to be root"))
    monkeypatch.setitem(NEEDS, "loop", (lambda: True, "loop devices"))
    assert missing(("root", "loop")) == "to be root"
    assert missing(("loop",)) == ""
