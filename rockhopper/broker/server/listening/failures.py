"""Failures of unknown peers, counted for /metrics and logged."""

import structlog

log = structlog.get_logger("broker.listener")


class Failures:
    """Failures of one kind."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.count = 0

    def count_one(self, peer: str, reason: str) -> None:
        """Count one, and log it; the log summarizes lines about peers."""
        self.count += 1
        log.warning(self._what, peer=peer, reason=reason)
