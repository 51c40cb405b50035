"""The example for Kubernetes says what settings and engine understand."""

import re
from pathlib import Path

from rockhopper.broker.replication.engines.kubernetes.leases import API_VERSION
from rockhopper.broker.replication.engines.kubernetes.pod_role import LABEL, MASTER
from rockhopper.broker.settings.config_file import load_config

EXAMPLE = (Path(__file__).parents[6] / "docker/kubernetes/replica-set.yaml").read_text()
POD = {"POD_NAME": "broker-a-2", "POD_NAMESPACE": "mq"}


def test_each_pod_is_another_replica_of_one_set(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("word")
    secret.chmod(0o440)
    environment = dict(re.findall(r'name: (ROCKHOPPER_\w+), value: "?([^"}]+)', EXAMPLE))
    assert len(environment) == EXAMPLE.count("{name: ROCKHOPPER_")
    for name, value in POD.items():
        environment = {key: each.replace(f"$({name})", value) for key, each in environment.items()}
    environment["ROCKHOPPER_HA_SECRET_FILE"] = str(secret)
    assert "ROCKHOPPER_HA_REPLICA_ID=$(( ${POD_NAME##*-} + 1 ))" in EXAMPLE
    environment["ROCKHOPPER_HA_REPLICA_ID"] = "3"

    loaded = load_config(environment=environment)
    assert loaded.warnings == []
    config = loaded.config.replication
    assert config.engine_address.place == "mq/broker-a"
    assert (config.replica_id, config.replicas, config.floor) == (3, 3, 2)
    assert config.address == "broker-a-2.broker-a-replicas.mq.svc"
    assert config.ha_port(loaded.config.listen_port) == 10912


def test_it_grants_what_is_asked_for() -> None:
    assert f"apiGroups: [{API_VERSION.partition('/')[0]}]" in EXAMPLE
    assert "verbs: [get, list, watch, create, update]" in EXAMPLE
    assert f"{LABEL}: {MASTER}" in EXAMPLE


def test_a_recovery_has_half_an_hour_before_the_pod_is_restarted() -> None:
    probe = EXAMPLE[EXAMPLE.index("startupProbe:") : EXAMPLE.index("readinessProbe:")]
    periods = [int(number) for number in re.findall(r"(?:Seconds|Threshold): (\d+)", probe)]
    assert periods[0] * periods[1] >= 1800


def test_it_passes_pod_security_restricted() -> None:
    for needed in (
        "runAsNonRoot: true",
        "seccompProfile: {type: RuntimeDefault}",
        "allowPrivilegeEscalation: false",
        "capabilities: {drop: [ALL]}",
    ):
        assert EXAMPLE.count(needed) == 1
