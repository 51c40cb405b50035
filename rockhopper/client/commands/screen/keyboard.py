"""Reads single keys from the terminal, without Return."""

import asyncio
import os
import signal
import sys
from types import TracebackType
from typing import Self

try:
    import termios
    import tty
except ImportError:  # Windows
    termios = None  # type: ignore[assignment]

HAS_KEYS = termios is not None
"""Whether single keys can be read on this system."""

_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
}
_READ_BYTES = 32
RESIZED = "resized"


class Keyboard:
    """Reads keys while open; always restores the terminal's mode when it closes."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._fd)
        self._keys: asyncio.Queue[str] = asyncio.Queue()

    def __enter__(self) -> Self:
        tty.setcbreak(self._fd)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._keys.put_nowait, RESIZED)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    async def key(self, timeout_s: float) -> str | None:
        """Return the next key; None if no key is pressed in time."""
        try:
            async with asyncio.timeout(max(timeout_s, 0.0)):
                return await self._keys.get()
        except TimeoutError:
            return None

    def _read(self) -> None:
        data = os.read(self._fd, _READ_BYTES)
        if not data:
            # The terminal is closed: no more keys will come.
            asyncio.get_running_loop().remove_reader(self._fd)
            self._keys.put_nowait("q")
            return
        for key in parse_keys(data):
            self._keys.put_nowait(key)


def parse_keys(data: bytes) -> list[str]:
    """Return the pressed keys: a name, or the character."""
    if data.startswith(b"\x1b") and data != b"\x1b":
        name = _NAMES.get(data)
        return [name] if name is not None else []
    return list(data.decode(errors="ignore"))
