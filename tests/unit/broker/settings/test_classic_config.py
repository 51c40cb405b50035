"""haMode=classic: what fits together, and what an operator is told."""

import pytest

from rockhopper.broker.settings.config_file import build_config, properties_of
from rockhopper.broker.settings.setting_fields import SettingError

CLASSIC = {"haMode": "classic"}
SYNC = {**CLASSIC, "brokerRole": "SYNC_MASTER"}


def test_it_is_off_by_default() -> None:
    config = build_config({})
    assert not config.replication.serves_slaves
    assert config.slave_warnings() == []


def test_the_keys_are_rocketmqs() -> None:
    texts = {"inSyncReplicas": "3", "haTransferBatchSize": "65536", "haMaxGapNotInSync": "1000"}
    config = build_config(SYNC | texts)
    assert texts.items() <= properties_of(config).items()
    assert config.acknowledging_slaves == 2


@pytest.mark.parametrize(
    "texts", [{}, {**SYNC}, {**CLASSIC, "inSyncReplicas": "2"}, {"inSyncReplicas": "2"}]
)
def test_nobody_is_waited_for(texts: dict[str, str]) -> None:
    assert build_config(texts).acknowledging_slaves == 0


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ({"haEngine": "etcd://a:2379", "haReplicaId": "1"}, "remove haEngine"),
        ({"brokers": "2"}, "brokers=2"),
        ({"role": "nameserver"}, "only a name server"),
        ({"followMaster": "a:1"}, "only a master can have slaves"),
        ({"brokerRole": "SYNC_MASTER", "minInSyncReplicas": "2"}, "inSyncReplicas=1: raise"),
    ],
)
def test_what_contradicts_it_is_refused(texts: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        build_config(CLASSIC | texts)


def test_the_open_port_is_warned_of() -> None:
    assert "every host that reaches haListenPort" in build_config(CLASSIC).slave_warnings()[0]


@pytest.mark.parametrize(
    ("texts", "warning"),
    [
        ({"inSyncReplicas": "2", "brokerRole": "SYNC_MASTER"}, "no effect without haMode=classic"),
        ({"inSyncReplicas": "2", **CLASSIC}, "set brokerRole"),
    ],
)
def test_waiting_that_is_asked_for_in_vain_is_warned_of(
    texts: dict[str, str], warning: str
) -> None:
    assert warning in build_config(texts).slave_warnings()[-1]
