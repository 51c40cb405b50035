"""What a pod asks, and what is said when that fails."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.replication.engines.consensus.connections import (
    ServiceRefusedError,
    UnavailableError,
)
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.replication.engines.kubernetes.api import (
    KubernetesAccess,
    KubernetesApi,
    NotDoneError,
    endpoint_in_pod,
)
from tests.support.fake_kubernetes import LEASES, TOKEN, FakeKubernetes, refused
from tests.support.hang import PATIENT_MS

PATH = f"{LEASES}mq/leases"


@pytest.fixture
async def server() -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes() as found:
        yield found


@pytest.fixture
async def api(server: FakeKubernetes, tmp_path: Path) -> AsyncIterator[KubernetesApi]:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    found = KubernetesApi(
        KubernetesAccess(server.endpoint, tmp_path / "token"), timeout_ms=PATIENT_MS
    )
    yield found
    await found.close()


def test_a_pod_finds_its_server_in_the_environment() -> None:
    assert endpoint_in_pod({"KUBERNETES_SERVICE_HOST": "fd00::1"}) == "[fd00::1]:443"
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert endpoint_in_pod(environment) == "10.0.0.1:6443"
    with pytest.raises(EngineError, match="works only in a pod"):
        endpoint_in_pod({})


async def test_a_token_that_was_replaced_is_read_again(
    server: FakeKubernetes, api: KubernetesApi, tmp_path: Path
) -> None:
    await api.ask("GET", PATH)
    server.token = "another"
    with pytest.raises(ServiceRefusedError, match="token mounted"):
        await api.ask("GET", PATH)
    (tmp_path / "token").write_text("another")
    await api.ask("GET", PATH)
    (tmp_path / "token").unlink()
    with pytest.raises(ServiceRefusedError, match="automountServiceAccountToken"):
        await api.ask("GET", PATH)


async def test_what_is_not_granted_is_told_with_what_grants_it(
    server: FakeKubernetes, api: KubernetesApi
) -> None:
    server.forbidden.add("GET")
    with pytest.raises(ServiceRefusedError, match="cannot GET leases: grant it by a Role"):
        await api.ask("GET", PATH)
    with pytest.raises(ServiceRefusedError, match="grant it by a Role"):
        await anext(api.watch(f"{PATH}?watch=true&resourceVersion=1"))


@pytest.mark.parametrize("status", [404, 409, 410])
async def test_who_was_too_late_is_told_so(
    server: FakeKubernetes, api: KubernetesApi, status: int
) -> None:
    server.fail("GET", refused(status, "x", "late"))
    with pytest.raises(NotDoneError, match="late") as caught:
        await api.ask("GET", PATH)
    assert caught.value.status == status


@pytest.mark.parametrize(("status", "may_be_done"), [(429, False), (500, True), (504, True)])
async def test_a_server_in_trouble_may_have_done_it(
    server: FakeKubernetes, api: KubernetesApi, status: int, may_be_done: bool
) -> None:
    server.fail("GET", refused(status, "x", ""))
    with pytest.raises(UnavailableError, match=f"HTTP {status}") as caught:
        await api.ask("GET", PATH)
    assert caught.value.may_be_done is may_be_done


async def test_an_answer_that_is_no_status_is_shown(
    server: FakeKubernetes, api: KubernetesApi
) -> None:
    server.fail("GET", b"HTTP/1.1 400 Bad\r\nContent-Length: 9\r\n\r\nwhat is it")
    with pytest.raises(ServiceRefusedError, match="what is i"):
        await api.ask("GET", PATH)
