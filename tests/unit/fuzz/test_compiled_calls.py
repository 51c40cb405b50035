"""Compiled code keeps no memory of malformed input, nor of calls that fail."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rockhopper.broker.hot.plain_sends import take_sends

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(take_sends is None, reason="it is not compiled")


def run(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/statm is Linux's")
def test_a_loop_of_malformed_input_leaves_memory_and_references_flat() -> None:
    run("tests.fuzz.flat_memory")


@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this Python cannot fail allocations")
def test_a_call_without_memory_raises_and_keeps_nothing() -> None:
    run("tests.fuzz.without_memory")
