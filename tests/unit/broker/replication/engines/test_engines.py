"""The engine that settings name."""

from pathlib import Path

import pytest

from rockhopper.broker.replication.engines.consensus.record_engine import RecordEngine
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.replication.engines.engines import engine_for, pod_role_for
from rockhopper.broker.replication.engines.etcd.engine import EtcdEngine
from rockhopper.broker.replication.engines.kubernetes import api as kubernetes
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.replica_config import ReplicaConfig
from rockhopper.broker.settings.setting_fields import SettingError
from tests.support.engine_contract import FIRST, LEADER_A
from tests.support.fake_etcd import FakeEtcd
from tests.support.fake_kubernetes import LEASES, TOKEN, FakeKubernetes

pytestmark = pytest.mark.usefixtures("held_clock")

POD = {"POD_NAME": "broker-a-0"}


def config_of(engine: str, **texts: str) -> BrokerConfig:
    return build_config({"haEngine": engine, "haReplicaId": "1", **texts})


@pytest.mark.parametrize(
    ("engine", "kind"),
    [("etcd://h", EtcdEngine), ("etcds://h", EtcdEngine), ("static:///x", RecordEngine)],
)
async def test_each_scheme_has_its_engine(engine: str, kind: type) -> None:
    made = engine_for(config_of(engine), lambda: 0.0)
    assert isinstance(made, kind)
    await made.close()


async def test_etcd_is_asked_as_the_settings_say(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("word\n")
    async with FakeEtcd(user=("broker", "word")) as etcd:
        config = config_of(
            f"etcd://{await etcd.listen()}",
            haEngineUser="broker",
            haEnginePasswordFile=str(password),
            haEnginePrefix="/mq/",
            brokerClusterName="c",
            brokerName="b",
        )
        engine = engine_for(config, lambda: 0.0)
        await engine.campaign(FIRST, LEADER_A)
        assert set(etcd.keys) == {"/mq/c/b/state", "/mq/c/b/leader"}
        assert list(etcd.leases.values()) == [4]
        password.write_text("new word\n")
        etcd.user = ("broker", "new word")
        etcd.tokens.clear()
        assert (await engine.read()).leader == LEADER_A
        await engine.close()


def test_kubernetes_is_asked_from_a_pod_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(EngineError, match="works only in a pod"):
        engine_for(config_of("kubernetes://mq/broker-a"), lambda: 0.0)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(SettingError, match=r"haEngineCaFile=.*/ca\.crt"):
        engine_for(config_of("kubernetes://mq/broker-a"), lambda: 0.0)


async def test_kubernetes_is_asked_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setattr(kubernetes, "TOKEN_FILE", tmp_path / "token")
    monkeypatch.setattr(ReplicaConfig, "engine_tls", lambda self, ca_file: None)
    config = config_of("kubernetes://mq/broker-a", haLeaseTtl="5000")
    async with FakeKubernetes() as server:
        pod = f"/api/v1/namespaces/mq/pods/{POD['POD_NAME']}"
        server.objects[pod] = {"metadata": {"name": POD["POD_NAME"]}}
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        engine = engine_for(config, lambda: 0.0)
        await engine.campaign(FIRST, LEADER_A)
        lease = server.objects[f"{LEASES}mq/leases/broker-a"]
        assert lease["spec"]["leaseDurationSeconds"] == 5
        await engine.close()

        assert pod_role_for(config, environment) is None
        assert pod_role_for(config_of("etcd://h"), POD) is None
        role = pod_role_for(config, environment | POD)
        assert role
        role.tell(is_master=True)
        await role.wait_until_set()
        assert server.objects[pod]["metadata"]["labels"] == {"rockhopper/role": "master"}
        await role.close()
