"""Failures: what goes wrong with strangers is counted, and logged at most once a minute."""

import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("broker.listener")

LOG_INTERVAL_S = 60.0


class Failures:
    """Failures of one kind."""

    def __init__(self, what: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._now_s = now_s
        self._next_log_s = float("-inf")
        self._unlogged = 0
        self.count = 0

    def count_one(self, peer: str, reason: str) -> None:
        """Count one; of many within a minute the log has the first, and how many there were."""
        self.count += 1
        self._unlogged += 1
        now_s = self._now_s()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + LOG_INTERVAL_S
            log.warning(self._what, count=self._unlogged, last_peer=peer, last_reason=reason)
            self._unlogged = 0
