"""The memory of a machine that has been up for a while: full of cached files that no process needs.

A page that a virtual machine has never used, or has returned to the host, costs its first user ten
times as much as a write to it. This would favour the servers that are measured later or write less.
Filling the page cache before a run avoids it: a server then writes to pages that were used before.
"""

import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FREE_MB = 256
CHUNK_BYTES = 4 << 20
MADV_POPULATE_WRITE = 23
"""Linux 5.14 and later: touches every page."""
MEMINFO = Path("/proc/meminfo")


def read_meminfo() -> dict[str, int]:
    """Return sizes in KiB by their names; empty if the file does not exist."""
    if not MEMINFO.exists():
        return {}
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    return {parts[0].rstrip(":"): int(parts[1]) for parts in lines}


@contextmanager
def filler(
    directory: Path, read_sizes: Callable[[], dict[str, int]] = read_meminfo
) -> Iterator[Callable[[], int]]:
    """Yield a function that fills the page cache until FREE_MB are free.

    The function returns the MiB that it used; they are freed at the end. It takes about a minute
    for 20 GiB, and less when it is called again.
    """
    path = directory / "page-cache"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    size_bytes = read_sizes().get("MemTotal", 0) << 10
    os.ftruncate(descriptor, size_bytes)

    def fill() -> int:
        taken_bytes = 0
        for position in range(0, size_bytes, CHUNK_BYTES):
            if read_sizes().get("MemFree", 0) < FREE_MB << 10:
                break
            os.posix_fadvise(descriptor, position, CHUNK_BYTES, os.POSIX_FADV_WILLNEED)
            taken_bytes += CHUNK_BYTES
        return taken_bytes >> 20

    try:
        yield fill
    finally:
        os.close(descriptor)
        path.unlink()


def touch_us(size_bytes: int) -> float:
    """Return the time of the first touch of a page of new memory, in microseconds."""
    with mmap.mmap(-1, size_bytes) as pages:
        started_s = time.perf_counter()
        pages.madvise(MADV_POPULATE_WRITE)
        return (time.perf_counter() - started_s) / (size_bytes / mmap.PAGESIZE) * 1e6


def read_ahead(directory: Path) -> None:
    """Read the files below *directory*, so that readers find them in memory."""
    buffer = bytearray(CHUNK_BYTES)
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                written_bytes = min(os.fstat(file.fileno()).st_blocks * 512, path.stat().st_size)
                while file.tell() < written_bytes:
                    file.readinto(buffer)
