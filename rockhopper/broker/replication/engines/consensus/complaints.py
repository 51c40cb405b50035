"""Logs failed requests to an engine, but the same reason only once a minute."""

import asyncio

import structlog

from rockhopper.broker.replication.engines.engine import EngineError

SAME_COMPLAINT_S = 60

log = structlog.get_logger("broker.ha")


class Complaints:
    """The failed requests to one engine."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float]] = {}

    def tell(self, request: str, reason: EngineError | str) -> None:
        """Log why a request failed, unless the same reason was logged within the last minute."""
        reason, now_s = str(reason), asyncio.get_running_loop().time()
        before, told_at_s = self._told.get(request, ("", 0.0))
        if reason != before or now_s - told_at_s >= SAME_COMPLAINT_S:
            self._told[request] = reason, now_s
            log.warning("no answer from the engine", request=request, reason=reason)
