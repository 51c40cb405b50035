"""Every official client does with our endpoint what it does with Apache's proxy.

All clients begin with all scenarios at once, so that what they wait for (delays, check-backs,
redeliveries) passes side by side; each test waits for one outcome.
"""

import time
from concurrent.futures import Future
from typing import Any

import pytest

from tests.interop.grpc import topics
from tests.interop.grpc.conftest import Programs
from tests.interop.grpc.programs import ANSWER_TIMEOUT_S, CLIENTS
from tests.interop.grpc.servers import SERVES_TLS, Endpoint

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

JOBS: dict[str, dict[str, object]] = {
    "normal": {"op": "normal", "count": 3},
    "push": {"op": "push", "count": 2},
    "fifo": {"op": "fifo", "count": 5},
    "delay": {"op": "delay"},
    "transaction": {"op": "transaction"},
    "invisible": {"op": "invisible"},
}
if SERVES_TLS:
    JOBS["tls"] = {"op": "normal", "count": 3, "tls": True}

Outcomes = dict[tuple[str, str], "Future[Any] | None"]


@pytest.fixture(scope="module")
def outcomes(programs: Programs) -> Outcomes:
    """What becomes of every scenario that a client has, by client and scenario."""
    return {
        (client, scenario): programs.begin(client, scenario=scenario, **job)  # type: ignore[arg-type]
        for client in CLIENTS
        for scenario, job in JOBS.items()
        if scenario not in CLIENTS[client].lacks
    }


def outcome(outcomes: Outcomes, client: str, scenario: str) -> Any:
    """Wait for one."""
    if scenario in CLIENTS[client].lacks:
        pytest.skip(f"{client}: {CLIENTS[client].lacks[scenario]}")
    if scenario not in JOBS:
        pytest.skip("the port does not speak TLS")
    future = outcomes[client, scenario]
    assert future is not None
    return future.result(len(JOBS) * ANSWER_TIMEOUT_S)


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    """In the order of their coming."""
    return [message["body"] for message in messages]


@pytest.mark.parametrize("scenario", ["normal", "tls"])
def test_what_a_message_carries_arrives(outcomes: Outcomes, client: str, scenario: str) -> None:
    messages = outcome(outcomes, client, scenario)
    assert sorted(bodies(messages)) == ["normal-0", "normal-1", "normal-2"]
    for message in messages:
        assert message["tag"] == "a"
        assert sorted(message["keys"]) == ["k1", "k2"]
        assert message["properties"] == {"colour": "red"}
        assert message["attempt"] == 1


def test_a_message_group_keeps_its_order(outcomes: Outcomes, client: str) -> None:
    messages = outcome(outcomes, client, "fifo")
    assert bodies(messages) == [f"fifo-{i}" for i in range(5)]
    assert {message["group"] for message in messages} == {"one"}


def test_a_delayed_message_comes_when_due_and_a_recalled_one_never(
    outcomes: Outcomes, client: str
) -> None:
    found = outcome(outcomes, client, "delay")
    assert bodies(found["messages"]) == ["delayed"]
    assert found["lateMs"] > -50


def test_a_lost_commit_is_asked_about(outcomes: Outcomes, client: str) -> None:
    found = outcome(outcomes, client, "transaction")
    assert set(bodies(found["messages"])) == {"committed", "lost"}
    assert "lost" in found["asked"]


def test_what_a_listener_fails_becomes_a_dead_letter(
    endpoint: Endpoint, outcomes: Outcomes, client: str
) -> None:
    assert outcome(outcomes, client, "push") == [1, 2]
    deadline = time.monotonic() + 120
    group = topics.group_of(client, "push")
    while (found := topics.dead_letters(endpoint.nameserver, group)) != 1:
        assert time.monotonic() < deadline, f"{found} dead letters of {group}"
        time.sleep(0.1)


def test_a_shortened_invisible_duration_brings_the_message_back(
    outcomes: Outcomes, client: str
) -> None:
    first, second = outcome(outcomes, client, "invisible")
    assert bodies([first, second]) == ["again", "again"]
    assert [first["attempt"], second["attempt"]] == [1, 2]
