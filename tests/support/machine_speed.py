"""The slowness of this machine, for bounds of processor time."""

import tempfile
import time
import zlib
from collections.abc import Callable

_TRIES = 5
_BLOCK = bytes(4 << 20)


def slowness() -> float:
    """Return how many times slower than usual this machine is now; at least 1.

    It is the worse of two measurements: computing, and copying and writing memory, which also
    depends on other processes.
    """
    return max(1.0, *(min(_cpu_s(work) for _ in range(_TRIES)) / usual for work, usual in _WORKS))


def _cpu_s(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


def _compute() -> None:
    table: dict[str, int] = {}
    for number in range(20_000):
        table[f"{number % 1000:x}"] = number


def _copy() -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(_BLOCK[:-1] + b"x")
    zlib.crc32(_BLOCK)


# Their times on the machine on which the bounds were chosen.
_WORKS = ((_compute, 0.0025), (_copy, 0.006))
