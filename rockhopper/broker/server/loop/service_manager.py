"""Notifications to systemd: the broker is ready, its loop runs, it is stopping.

A unit with ``Type=notify`` names a socket in the environment (NOTIFY_SOCKET) and waits on it for
``READY=1``. One with WatchdogSec kills a process that has not sent ``WATCHDOG=1`` within
WATCHDOG_USEC. Without that socket nothing is sent.
"""

import asyncio
import os
import socket
from collections.abc import Mapping

import structlog

log = structlog.get_logger("broker.service_manager")


class ServiceManager:
    """The service manager that started this process, if any."""

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
