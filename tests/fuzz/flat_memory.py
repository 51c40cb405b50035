"""Repeat compiled calls of malformed input, and fail if memory or references grow.

``python -m tests.fuzz.flat_memory``, in a process of its own: threads of other tests allocate, too.
"""

import gc
import sys
import tracemalloc
from pathlib import Path

from tests.support.compiled_calls import record_calls

ROUNDS = 25
"""More calls than a leak could hide in: each leaves something in each round."""
CALLS = 100_000
SLACK_BYTES = 1 << 20


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    """Repeat the calls."""
    calls = record_calls(30)
    rounds = max(ROUNDS, CALLS // len(calls) + 1)

    def repeat(count: int) -> None:
        for _ in range(count):
            for call in calls:
                call.repeat()
        gc.collect()

    repeat(3)
    blocks, resident = sys.getallocatedblocks(), _resident_bytes()
    singletons = sys.getrefcount(None), sys.getrefcount(True), sys.getrefcount(b"")
    repeat(rounds)
    assert sys.getallocatedblocks() - blocks < rounds
    assert _resident_bytes() - resident < SLACK_BYTES
    for now, before in zip(
        (sys.getrefcount(None), sys.getrefcount(True), sys.getrefcount(b"")),
        singletons,
        strict=True,
    ):
        assert abs(now - before) < rounds
    # What is too large for Python's own blocks is not among them.
    tracemalloc.start()
    repeat(1)
    traced = tracemalloc.get_traced_memory()[0]
    repeat(ROUNDS)
    assert tracemalloc.get_traced_memory()[0] - traced < 64 * ROUNDS


if __name__ == "__main__":
    main()
