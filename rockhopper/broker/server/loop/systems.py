"""What a broker needs of its operating system and tells its service manager.

The supported system is Linux; on others, the log lists what is missing.
"""

import asyncio
import importlib
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

import structlog

from rockhopper.protocol.compiled import import_compiled

IN_HEAP_BYTES = 8 << 20
"""A block of this size or more is returned when it is freed: the largest bodies are not kept."""
AT_END_BYTES = 32 << 20
"""Up to this much free memory at the end of the heap is kept."""
_heap = import_compiled("rockhopper.broker.server.loop._heap")
log = structlog.get_logger("broker.service_manager")


def refusal() -> str | None:
    """Return why no broker can run here, as a sentence; None if it can."""
    missing = [f"module {name}" for name in ("fcntl", "resource") if not _has(name)]
    missing += [f"os.{name}" for name in ("pread", "pwrite") if not hasattr(os, name)]
    if not missing:
        return None
    return (
        f"this system ({sys.platform}) lacks {', '.join(missing)}, which a store needs: run "
        "the broker on Linux, the supported system (also in a container, a virtual machine or "
        "WSL 2); the client, `rockhopper`, works here"
    )


def shortcomings() -> list[str]:
    """Return a sentence for each shortcoming of this operating system."""
    found = []
    if sys.platform != "linux":
        found.append(
            f"this system is {sys.platform}, but only Linux is supported: the effects of a power "
            "cut or a full disk are not tested elsewhere"
        )
    if not hasattr(os, "posix_fallocate"):
        found.append(
            "this system has no posix_fallocate: new files are filled with zeros instead, which "
            "takes longer"
        )
    if not _has("uvloop"):
        found.append(
            "uvloop is not installed: the broker runs on asyncio's own event loop, which is slower"
        )
    return found


def _has(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def keep_freed_memory(heap: Any = _heap) -> bool:
    """Keep the memory that one pass frees for the next one; return whether that is supported.

    A pass allocates blocks of some hundred kilobytes and frees them again. The C library would
    return them to the system at once. Then each page, when it is allocated again, costs a fault and
    is filled with zeros: a sixth of the time of a batch.
    """
    return heap is not None and heap.keep_freed(IN_HEAP_BYTES, AT_END_BYTES)


class ServiceManager:
    """The service manager that started this process, if any, such as systemd.

    A unit with ``Type=notify`` names a socket in the environment (NOTIFY_SOCKET) and waits on it
    for ``READY=1``. One with WatchdogSec kills a process that has not sent ``WATCHDOG=1`` within
    WATCHDOG_USEC. Without that socket nothing is sent.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        # "@" represents the zero byte at the start of an abstract socket's name.
        self._address = environment.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        self._watched_s = 0.0
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            self._watched_s = int(environment.get("WATCHDOG_USEC", "0")) / 1e6

    def serving(self, facts: Mapping[str, str]) -> None:
        """Report that clients may connect, and from now on that the loop runs."""
        status = ", ".join(f"{name} {fact}" for name, fact in facts.items())
        self._tell(f"READY=1\nSTATUS=serving: {status}")
        if self._address and self._watched_s:
            self._live()

    def stopping(self) -> None:
        """Report that the broker stops and does not restart."""
        self._tell("STOPPING=1\nSTATUS=stopping")

    def _live(self) -> None:
        self._tell("WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._watched_s / 3, self._live)

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("the service manager could not be notified", what=text, reason=str(error))
