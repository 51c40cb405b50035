"""Commands whose standard streams are closed."""

import subprocess
import sys

import pytest

CLOSED = ("2>&-", "<&- >&- 2>&-", ">&-", "<&-")


@pytest.mark.parametrize("streams", CLOSED)
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("rockhopper.broker -p", 0),
        ("rockhopper.broker store check /nonexistent", 2),
        ("rockhopper.client --help", 0),
        ("rockhopper.client topic list -n 127.0.0.1:1", 1),
    ],
)
def test_a_command_ends_as_it_does_with_its_streams(command: str, code: int, streams: str) -> None:
    shell = f"exec {sys.executable} -m {command} {streams}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr
