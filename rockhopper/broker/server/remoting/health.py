"""/healthz, /readyz and /metrics of a broker; the owner adds other pages.

/healthz   503 if only a restart can help (an fsync failed): for liveness probes
/readyz    503 while messages are rejected (starting, stopping, disk full): for readiness
"""

from collections.abc import Callable, Mapping

from rockhopper.broker.server.remoting.http import (
    Application,
    HttpServer,
    Page,
    PageMaker,
    PageReaders,
    ServedPage,
)
from rockhopper.broker.users.access import AccessRules


class HealthServer(HttpServer):
    """The operator's port of one broker."""

    def __init__(
        self,
        why_not_healthy: Callable[[], str | None],
        why_not_ready: Callable[[], str | None],
        metrics: PageMaker,
        access: AccessRules,
        applications: Mapping[str, Application] | None = None,
        knows_name: Callable[[str], bool] = lambda _named: True,
    ) -> None:
        self._why_not_healthy = why_not_healthy
        self._why_not_ready = why_not_ready
        pages = {
            "/healthz": ServedPage(self._healthz, PageReaders.BALANCERS),
            "/readyz": ServedPage(self._readyz, PageReaders.BALANCERS),
            "/metrics": ServedPage(metrics, PageReaders.OPERATORS),
        }
        super().__init__(pages, access, applications, knows_name)

    async def _healthz(self) -> Page:
        return state_page(self._why_not_healthy())

    async def _readyz(self) -> Page:
        return state_page(self._why_not_ready())


def state_page(problem: str | None) -> Page:
    """Return 200 without a *problem*, else 503 and the problem."""
    return Page(b"ok\n") if problem is None else Page(f"{problem}\n".encode(), 503)
