"""The two ids of a message: where it stands in the log, and the producer's own.

The offset message id is the store's address (4 or 16 bytes of host, 4 of port) and the commit log
offset (8 bytes) in upper-case hex.
"""

import os
from collections.abc import Callable
from itertools import count

from protocol.message_codec import make_unique_id


def message_id(store_host: bytes, commit_log_offset: int) -> str:
    """The offset message id; *store_host* is 8 or 20 bytes as in the record."""
    return f"{store_host.hex().upper()}{commit_log_offset:016X}"


class UniqueIds:
    """Makes UNIQ_KEYs for messages whose producer gave none."""

    def __init__(self, host: bytes, now_ms: Callable[[], int]) -> None:
        self._host = host
        self._now_ms = now_ms
        self._salt = int.from_bytes(os.urandom(4), "big")
        self._count = count()

    def next(self) -> str:
        """An id that no other message has."""
        return make_unique_id(
            self._host, os.getpid(), self._salt, self._now_ms(), next(self._count)
        )
