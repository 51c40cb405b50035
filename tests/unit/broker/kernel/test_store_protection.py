"""Whom the files of a store let in, where its broker has users."""

import asyncio
import grp
import json
import os
import stat
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.store_protection import protect_store
from rockhopper.broker.settings.config_file import build_config
from tests.support.replica_set import ReplicaSet

SECRET = "the secret of root"
USERS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": f'{{"username": "root", "password": "{SECRET}"}}',
}
REPLICA = {"haEngine": "etcd://127.0.0.1:1", "brokerIP1": "127.0.0.1", "haReplicaId": "1"}


def modes(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode)
        for path in (root, *root.rglob("*"))
    }


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """A store that others may read."""
    for name in ("commitlog/0", "consumequeue/t/0/0", "config/users.json", "config/tls/key.pem"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path


def test_a_store_that_was_open_is_closed_and_that_is_logged_once(opened: Path) -> None:
    config = build_config(USERS | {"storePathRootDir": str(opened)})
    with capture_logs() as lines:
        protect_store(config)
        protect_store(config)
    assert {mode for path, mode in modes(opened).items() if (opened / path).is_dir()} == {0o700}
    assert {mode for path, mode in modes(opened).items() if (opened / path).is_file()} == {0o600}
    assert [line["directory"] for line in lines] == [str(opened)]


def test_a_start_that_was_killed_while_it_closed_the_store_begins_again(opened: Path) -> None:
    (opened / "commitlog").chmod(0o700)
    (opened / "commitlog/0").chmod(0o600)
    protect_store(build_config(USERS | {"storePathRootDir": str(opened)}))
    assert {mode & 0o077 for mode in modes(opened).values()} == {0}


def test_a_group_may_read_all_but_secrets(opened: Path) -> None:
    own = grp.getgrgid(os.getgid()).gr_name
    protect_store(build_config(USERS | {"storePathRootDir": str(opened), "storeGroup": own}))
    found = modes(opened)
    assert (found["."], found["commitlog"]) == (0o2750, 0o2750)
    assert (found["commitlog/0"], found["consumequeue/t/0/0"]) == (0o640, 0o640)
    assert found["config/users.json"] == found["config/tls/key.pem"] == 0o600
    assert (opened / "commitlog/0").stat().st_gid == os.getgid()


def test_without_users_the_store_stays_as_it_is(opened: Path) -> None:
    before = modes(opened)
    protect_store(build_config({"storePathRootDir": str(opened)}))
    assert modes(opened) == before


def test_a_commit_log_elsewhere_is_closed_too(opened: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    texts = {"storePathRootDir": str(opened), "storePathCommitLog": str(elsewhere)}
    protect_store(build_config(USERS | texts))
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o700


def test_nothing_is_made_that_is_not_there(tmp_path: Path) -> None:
    protect_store(build_config(USERS | {"storePathRootDir": str(tmp_path / "store")}))
    assert list(tmp_path.iterdir()) == []


async def test_everything_that_a_broker_makes_is_its_own_users(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = {**USERS, "storePathRootDir": str(root), "listenPort": "0", "namesrvPort": "0"}
    flags = [f"--set={key}={value}" for key, value in {**settings, "httpPort": "-1"}.items()]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rockhopper.broker", *flags), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async for line in process.stderr:
        if json.loads(line)["event"] == "serving":
            break
    process.terminate()
    await process.communicate()
    assert process.returncode == 0
    assert {mode & 0o077 for mode in modes(root).values()} == {0}


async def test_replicas_with_users_close_their_logs_and_what_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ReplicaSet(tmp_path, monkeypatch, USERS) as replicas:
        await replicas.start(1, 2)
        master = await replicas.master(in_sync=2)
        await replicas.same_logs()
        follower = replicas.brokers[3 - master]
        for number in (1, 2):
            assert stat.S_IMODE(replicas.root_of(number).stat().st_mode) == 0o700
        users = replicas.root_of(3 - master) / "config" / "users.json"
        await follower.tables.users.saved()
        assert SECRET in users.read_text()
        assert users.stat().st_mode & 0o777 == 0o600
