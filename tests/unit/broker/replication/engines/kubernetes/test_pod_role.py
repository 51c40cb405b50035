"""The label of the pod follows what the replica does."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.replication.engines.kubernetes.api import KubernetesAccess, KubernetesApi
from rockhopper.broker.replication.engines.kubernetes.pod_role import LABEL, PodRole
from tests.support.fake_kubernetes import TOKEN, FakeKubernetes, refused
from tests.support.hang import PATIENT_MS

POD = "/api/v1/namespaces/mq/pods/broker-0"


@pytest.fixture
async def server() -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes() as found:
        metadata = {"name": "broker-0", "labels": {"app": "broker"}}
        found.objects[POD] = {"kind": "Pod", "metadata": metadata}
        yield found


@pytest.fixture
async def role(server: FakeKubernetes, tmp_path: Path) -> AsyncIterator[PodRole]:
    (tmp_path / "token").write_text(TOKEN)
    api = KubernetesApi(
        KubernetesAccess(server.endpoint, tmp_path / "token"), timeout_ms=PATIENT_MS
    )
    found = PodRole(api, "mq", "broker-0", retry_s=0)
    yield found
    await found.close()


async def test_the_label_says_who_leads(server: FakeKubernetes, role: PodRole) -> None:
    await role.wait_until_set()
    for is_master, label in ((True, "master"), (False, "slave")):
        role.tell(is_master=is_master)
        await role.wait_until_set()
        labels = server.objects[POD]["metadata"]["labels"]
        assert labels == {"app": "broker", LABEL: label}


async def test_a_label_that_is_not_set_is_set_again(server: FakeKubernetes, role: PodRole) -> None:
    server.fail("PATCH", refused(500, "", "no"), is_done=False)
    with capture_logs() as told:
        role.tell(is_master=True)
        await role.wait_until_set()
    assert "no" in told[0]["reason"]
    assert server.objects[POD]["metadata"]["labels"][LABEL] == "master"


async def test_the_last_word_counts(server: FakeKubernetes, role: PodRole) -> None:
    role.tell(is_master=True)
    role.tell(is_master=False)
    await role.wait_until_set()
    assert server.objects[POD]["metadata"]["labels"][LABEL] == "slave"
    assert server.asked("PATCH") == 1
