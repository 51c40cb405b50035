"""Message ids as RocketMQ's clients make them (UNIQ_KEY), unique across machines and restarts.

The layout is protocol.message_ids.make_unique_id's: address, process id, a number that
distinguishes clients of one process, milliseconds since the month began, a counter.
"""

import itertools
import os
import secrets
import socket
import time
from collections.abc import Callable

from rockhopper.client.network.addresses import own_host
from rockhopper.protocol.message_ids import make_unique_id


class UniqueIds:
    """Makes the ids of one producer."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._ip = socket.inet_aton(own_host())
        self._pid = os.getpid()
        self._salt = secrets.randbits(32)
        self._counter = itertools.count()

    def next(self) -> str:
        """Return a new id."""
        return make_unique_id(
            self._ip, self._pid, self._salt, self._now_ms(), next(self._counter) & 0xFFFF
        )
