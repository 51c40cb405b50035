"""RocketMQ 4's last client with the users of a plain_acl.yml that was imported.

To reply they get a right that RocketMQ 4 does not ask for, as the import says.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import rockhopper
from tests.interop.acl.asking import ROOT, SETTINGS
from tests.interop.java_client import JavaClient, JavaClientError
from tests.interop.rockhopper import ROOT as REPOSITORY
from tests.interop.rockhopper import RockhopperServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PLAIN_ACL = """\
globalWhiteRemoteAddresses:
accounts:
- accessKey: shopkeeper
  secretKey: a secret of a shop
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
  - payments=PUB|SUB
  - questions=PUB|SUB
  - secrets=DENY
  groupPerms:
  - billing=SUB
  - spies=DENY
- accessKey: warden
  secretKey: a secret of a warden
  whiteRemoteAddress:
  admin: true
"""
SHOPKEEPER = {"accessKey": "shopkeeper", "secretKey": "a secret of a shop"}
WARDEN = {"accessKey": "warden", "secretKey": "a secret of a warden"}
REPLIES = "DefaultCluster_REPLY_TOPIC"
CLIENT_PROJECT = Path(__file__).parent / "legacy"


def _rockhopper(server: RockhopperServer, *arguments: str) -> str:
    signed = {
        "ROCKHOPPER_ACCESS_KEY": ROOT.access_key,
        "ROCKHOPPER_SECRET_KEY": ROOT.secret,
        "NAMESRV_ADDR": server.nameserver,
    }
    command = [sys.executable, "-m", "rockhopper.client", *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | signed, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RockhopperServer]:
    directory = tmp_path_factory.mktemp("server")
    started = rockhopper.start(directory / "ours", settings=SETTINGS)
    try:
        (directory / "plain_acl.yml").write_text(PLAIN_ACL)
        said = _rockhopper(started, "auth", "import", str(directory / "plain_acl.yml"))
        assert "shopkeeper: user" in said
        assert "warden: Super user" in said
        _rockhopper(started, "acl", "allow", "shopkeeper", f"Topic:{REPLIES}", "Pub")
        for topic in ("orders", "payments", "questions", "secrets", "not-named"):
            _rockhopper(started, "topic", "create", topic)
        yield started
    finally:
        started.kill()


@pytest.fixture(scope="module")
def legacy(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    client = JavaClient(
        tmp_path_factory.mktemp("legacy"), project=CLIENT_PROJECT, main="LegacyClient"
    )
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def job(server: RockhopperServer) -> dict[str, object]:
    return {
        "nameserver": server.nameserver,
        "topic": "orders",
        "group": "billing",
        "body": "an order",
        "timeoutMs": 300_000,
        **SHOPKEEPER,
    }


def test_who_may_sends_and_consumes(legacy: JavaClient, job: dict[str, object]) -> None:
    assert legacy.call("send", **job) == "SEND_OK"
    assert legacy.call("consume", **job) == "an order"


def test_a_transaction_ends(legacy: JavaClient, job: dict[str, object]) -> None:
    job |= {"topic": "payments", "body": "a payment"}
    assert legacy.call("transaction", **job) == "SEND_OK"
    assert legacy.call("consume", **job) == "a payment"


def test_a_request_is_replied_to(legacy: JavaClient, job: dict[str, object]) -> None:
    job |= {"topic": "questions", "body": "a question"}
    assert legacy.call("send", **job | {"body": "makes the topic"}) == "SEND_OK"
    replying = legacy.begin("consume", **job, replies=True)
    assert legacy.call("request", **job) == "a reply"
    replying.result()


def test_a_super_user_may_everything(legacy: JavaClient, job: dict[str, object]) -> None:
    assert legacy.call("send", **job | {"topic": "secrets"} | WARDEN) == "SEND_OK"


@pytest.mark.parametrize(
    "changed",
    [
        {"secretKey": "another secret than his"},
        {"accessKey": "an unknown"},
        {"topic": "secrets"},
        {"topic": "not-named"},
    ],
    ids=str,
)
def test_who_may_not_is_refused(
    legacy: JavaClient, job: dict[str, object], changed: dict[str, str]
) -> None:
    with pytest.raises(JavaClientError, match=r"MQ(Client|Broker)Exception"):
        legacy.call("send", **job | changed)


def test_a_denied_group_gets_nothing(legacy: JavaClient, job: dict[str, object]) -> None:
    assert legacy.call("send", **job) == "SEND_OK"
    with pytest.raises(JavaClientError, match="Timeout"):
        legacy.call("consume", **job | {"group": "spies", "timeoutMs": 3_000})
