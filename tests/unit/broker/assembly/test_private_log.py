"""Whom the log of a replica set lets in, where its broker has users."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.assembly.private_log import close_to_others
from rockhopper.broker.settings.config_file import build_config
from tests.support.replica_set import ReplicaSet

SECRET = "the secret of root"
USERS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": f'{{"username": "root", "password": "{SECRET}"}}',
}
REPLICA = {"haEngine": "etcd://127.0.0.1:1", "brokerIP1": "127.0.0.1", "haReplicaId": "1"}
SECRETS_OF = ("commitlog", "rockhopper")


def modes(root: Path) -> list[int]:
    return [(root / name).stat().st_mode & 0o777 for name in SECRETS_OF]


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """A store that others may read."""
    for name in SECRETS_OF:
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_what_was_open_is_closed_and_said_once(opened: Path) -> None:
    config = build_config(USERS | REPLICA | {"storePathRootDir": str(opened)})
    with capture_logs() as lines:
        close_to_others(config)
        close_to_others(config)
    assert modes(opened) == [0o700, 0o700]
    (line,) = lines
    assert line["closed"] == [str(opened / name) for name in SECRETS_OF]


@pytest.mark.parametrize("settings", [USERS, REPLICA, {}])
def test_a_log_without_secrets_stays_as_it_is(opened: Path, settings: dict[str, str]) -> None:
    close_to_others(build_config(settings | {"storePathRootDir": str(opened)}))
    assert modes(opened) == [0o755, 0o755]


def test_nothing_is_made_that_is_not_there(tmp_path: Path) -> None:
    close_to_others(build_config(USERS | REPLICA | {"storePathRootDir": str(tmp_path)}))
    assert list(tmp_path.iterdir()) == []


async def test_replicas_with_users_close_their_logs_and_what_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ReplicaSet(tmp_path, monkeypatch, USERS) as replicas:
        await replicas.start(1, 2)
        master = await replicas.master(in_sync=2)
        await replicas.same_logs()
        follower = replicas.brokers[3 - master]
        assert [modes(replicas.root_of(number)) for number in (1, 2)] == [[0o700, 0o700]] * 2
        users = replicas.root_of(3 - master) / "config" / "users.json"
        await follower.tables.users.saved()
        assert SECRET in users.read_text()
        assert users.stat().st_mode & 0o777 == 0o600
