"""Commands whose standard streams are closed, or take no more output."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.costly

ALL_CLOSED = "<&- >&- 2>&-"


@pytest.mark.parametrize(
    ("command", "code", "streams"),
    [
        ("rockhopper.broker -p", 0, ALL_CLOSED),
        ("rockhopper.broker store check /nonexistent", 2, ALL_CLOSED),
        ("rockhopper.client --help", 0, ALL_CLOSED),
        ("rockhopper.client topic list -n 127.0.0.1:1", 1, ALL_CLOSED),
        ("rockhopper.pipeline --help", 0, ALL_CLOSED),
        ("rockhopper.broker -p", 0, "<&-"),
        ("rockhopper.broker -p", 0, ">&-"),
        ("rockhopper.client topic list -n 127.0.0.1:1", 1, "2>&-"),
    ],
)
def test_a_command_ends_as_it_does_with_its_streams(command: str, code: int, streams: str) -> None:
    shell = f"exec {sys.executable} -m {command} {streams}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "command",
    [
        "broker -p",
        "broker store --help",
        "client --version",
        "client completion bash",
        "pipeline --help",
    ],
)
def test_output_that_cannot_be_written_is_one_sentence(command: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", *f"rockhopper.{command}".split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith(": No space left on device")
