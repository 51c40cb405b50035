"""Memory that was freed is taken again without a fault of each of its pages."""

import platform
import subprocess
import sys

import pytest

from rockhopper.broker.loop import heap

TAKE_AND_FREE = """
import resource
from rockhopper.broker.loop.heap import keep_freed_memory
kept = {keep} and keep_freed_memory()
before = 0
for number in range(220):
    if number == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(300_000) for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, keep: bool) -> int:
    text = subprocess.run(
        [sys.executable, "-c", TAKE_AND_FREE.format(keep=keep)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return int(text)


@pytest.mark.skipif(
    heap._heap is None or platform.libc_ver()[0] != "glibc", reason="needs glibc and a compiler"
)
def test_blocks_of_a_pass_stay_for_the_next_one() -> None:
    assert faults(keep=True) < 1000 < faults(keep=False)


def test_without_a_compiler_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_heap", None)
    assert not heap.keep_freed_memory()
