"""What systemd is told of the broker: that it serves, that its loop turns, that it is stopping.

A unit with ``Type=notify`` names a socket in the environment (NOTIFY_SOCKET) and waits on it for
``READY=1``; one with WatchdogSec kills a process that has not said ``WATCHDOG=1`` for so long
(WATCHDOG_USEC). Without that socket nothing happens here.
"""

import asyncio
import os
import socket
from collections.abc import Mapping

import structlog

log = structlog.get_logger("broker.service_manager")


class ServiceManager:
    """Whoever started this process and wants to know how it is, if anybody does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # "@" stands for the zero byte that an abstract socket's name begins with.
        self._address = environment.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        self._watched_s = 0.0
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            self._watched_s = int(environment.get("WATCHDOG_USEC", "0")) / 1e6

    def serving(self, facts: Mapping[str, str]) -> None:
        """Say that clients may come, and from now on that the loop turns."""
        status = ", ".join(f"{name} {fact}" for name, fact in facts.items())
        self._tell(f"READY=1\nSTATUS=serving: {status}")
        if self._address and self._watched_s:
            self._live()

    def stopping(self) -> None:
        """Say that no restart is to be awaited."""
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
