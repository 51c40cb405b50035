"""Memory that was freed is taken again without a fault of each of its pages."""

import os
import platform
import subprocess
import sys

import pytest

from rockhopper.broker.server.loop.systems import keep_freed_memory
from rockhopper.protocol.compiled import MISSING

TAKE_AND_FREE = """
import resource
from rockhopper.broker.server.loop.systems import keep_freed_memory
kept = {keep} and keep_freed_memory()
before = 0
for number in range(220):
    if number == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(300_000) for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
# What glibc begins with. Named, it stays: else it depends on what lies at the end of the heap.
THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}


def faults(*, keep: bool) -> int:
    text = subprocess.run(
        [sys.executable, "-c", TAKE_AND_FREE.format(keep=keep)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | THRESHOLDS,
    ).stdout
    return int(text)


@pytest.mark.skipif("heap" in MISSING, reason="no compiler")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_blocks_of_a_pass_stay_for_the_next_one() -> None:
    assert faults(keep=True) < 1000 < faults(keep=False)


def test_without_a_compiler_nothing_is_said() -> None:
    assert not keep_freed_memory(None)
