"""/healthz, /readyz and /metrics of a broker.

/healthz   503 when only a restart can help (an fsync failed): for liveness probes
/readyz    503 while messages are not taken (starting, stopping, disk full): for readiness
"""

from typing import TYPE_CHECKING

from rockhopper.broker.metrics import metrics_page
from rockhopper.broker.remoting.http import HttpServer, Page

if TYPE_CHECKING:
    from rockhopper.broker.broker import Broker


class HealthServer(HttpServer):
    """The operator's port of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        super().__init__(
            {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}
        )

    async def _healthz(self) -> Page:
        return state_page(self._broker.why_not_healthy())

    async def _readyz(self) -> Page:
        return state_page(self._broker.why_not_ready())

    async def _metrics(self) -> Page:
        return await metrics_page(self._broker)


def state_page(problem: str | None) -> Page:
    """200 when there is no *problem*, else 503 and what it is."""
    return Page(b"ok\n") if problem is None else Page(f"{problem}\n".encode(), 503)
