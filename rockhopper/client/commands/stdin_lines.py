"""Reads lines of standard input as they arrive, without a thread."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator

_CHUNK_BYTES = 1 << 16


async def read_stdin_lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Yield each line without its end, including an unterminated last one; skip empty lines."""
    pending = b""
    while chunk := await _read(descriptor):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if stripped := line.removesuffix(b"\r"):
                yield stripped
    if pending:
        yield pending.removesuffix(b"\r")


async def _read(descriptor: int) -> bytes:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        await _wait_readable(descriptor)
    return os.read(descriptor, _CHUNK_BYTES)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _wait_readable(descriptor: int) -> None:
    """Wait until reading will not block.

    The descriptor itself stays blocking: a terminal's is shared with standard output.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _wake, ready)
    except (NotImplementedError, PermissionError):
        return  # Windows, or a file that does not support waiting (/dev/null): read it at once
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
