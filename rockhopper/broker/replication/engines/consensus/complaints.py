"""Why an engine gives no answers, in the log: the same reason once in a while."""

import asyncio

import structlog

from rockhopper.broker.replication.engines.engine import EngineError

SAME_COMPLAINT_S = 60

log = structlog.get_logger("broker.ha")


class Complaints:
    """Of one engine."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float]] = {}

    def tell(self, request: str, reason: EngineError | str) -> None:
        """Say why a request failed."""
        reason, now_s = str(reason), asyncio.get_running_loop().time()
        before, told_at_s = self._told.get(request, ("", 0.0))
        if reason != before or now_s - told_at_s >= SAME_COMPLAINT_S:
            self._told[request] = reason, now_s
            log.warning("no answer from the engine", request=request, reason=reason)
