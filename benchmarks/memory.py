"""Memory as a machine has it that has been up for a while: full of files that nobody needs now.

A page of memory that a virtual machine has never touched, or has given back, costs its first user
ten times what writing to it costs, and who is measured first, or writes least, is better off. So
the page cache is filled before a run: what a server writes goes to pages that were used before.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FREE_MB = 256
CHUNK_BYTES = 4 << 20
MEMINFO = Path("/proc/meminfo")


def read_meminfo() -> dict[str, int]:
    """Sizes in KiB by their names; empty where there is no such file."""
    if not MEMINFO.exists():
        return {}
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    return {parts[0].rstrip(":"): int(parts[1]) for parts in lines}


@contextmanager
def filler(
    directory: Path, read_sizes: Callable[[], dict[str, int]] = read_meminfo
) -> Iterator[Callable[[], int]]:
    """Give a function that fills the page cache until FREE_MB are free, and returns what it took.

    What it took, in MiB, is given back at the end. It takes about a minute for 20 GiB, and less
    when it is called again.
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


def read_ahead(directory: Path) -> None:
    """Read what was written to the files below *directory*: readers find it in memory then."""
    buffer = bytearray(CHUNK_BYTES)
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                written_bytes = min(os.fstat(file.fileno()).st_blocks * 512, path.stat().st_size)
                while file.tell() < written_bytes:
                    file.readinto(buffer)
