"""The engine that settings name."""

from pathlib import Path

import pytest

from rockhopper.broker.ha.consensus.record_engine import RecordEngine
from rockhopper.broker.ha.engines import engine_for
from rockhopper.broker.ha.etcd.engine import EtcdEngine
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config
from tests.support.engine_contract import FIRST, LEADER_A
from tests.support.fake_etcd import FakeEtcd


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
        await engine.close()
