"""Health and readiness: two questions, each answered with ok or the problem."""

import pytest

from rockhopper.broker.server.remoting.health import HealthServer, state_page
from rockhopper.broker.server.remoting.http import Page
from rockhopper.broker.users.access import AccessRules

OPEN = AccessRules(remote_admin=False)


@pytest.mark.parametrize(("problem", "status"), [(None, 200), ("the disk is full", 503)])
def test_a_state_is_ok_or_the_problem(problem: str | None, status: int) -> None:
    page = state_page(problem)
    assert page.status == status
    assert page.body == b"%s\n" % (problem or "ok").encode()


async def test_health_and_readiness_are_two_questions_asked_anew_each_time() -> None:
    async def metrics() -> Page:
        return Page(b"m 1\n")

    unhealthy: list[str] = []
    server = HealthServer(lambda: "".join(unhealthy) or None, lambda: "starting", metrics, OPEN)
    pages = server.pages
    assert (await pages["/healthz"].make()).status == 200
    assert (await pages["/readyz"].make()).body == b"starting\n"
    assert (await pages["/metrics"].make()).body == b"m 1\n"
    unhealthy.append("an fsync failed")
    assert (await pages["/healthz"].make()).status == 503
