"""Unique keys for messages whose producer gave none."""

import os
from collections.abc import Callable
from itertools import count

from rockhopper.protocol.message_ids import make_unique_id


class UniqueIds:
    """Makes UNIQ_KEYs as a producer on this host would."""

    def __init__(self, ip: bytes, now_ms: Callable[[], int]) -> None:
        self._ip = ip
        self._now_ms = now_ms
        self._salt = int.from_bytes(os.urandom(4), "big")
        self._count = count()

    def next(self) -> str:
        """An id that no other message has."""
        return make_unique_id(self._ip, os.getpid(), self._salt, self._now_ms(), next(self._count))
