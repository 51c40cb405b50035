"""Users and rules by Apache's mqadmin, and its Java client as each of them."""

import asyncio
import json
from typing import Any

import pytest

from rockhopper.client import Admin, Credentials
from tests.interop.conftest import Launcher
from tests.interop.java_client import JavaClient, JavaClientError
from tests.support.documented_rights import documented_rights

pytestmark = pytest.mark.interop

ROOT = {"accessKey": "root", "secretKey": "the secret of root"}
ALICE = {"accessKey": "alice", "secretKey": "the secret of alice"}
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps(
        {"username": ROOT["accessKey"], "password": ROOT["secretKey"]}
    ),
}


@pytest.fixture
def server(launch: Launcher) -> Any:
    return launch.rockhopper(SETTINGS)


def test_mqadmin_makes_users_and_rules_and_they_decide(java: JavaClient, server: Any) -> None:
    def mqadmin(*arguments: str) -> str:
        target = ["-n", server.nameserver, "-b", server.broker_address]
        return str(java.call("mqadmin", arguments=[*arguments, *target], **ROOT))

    def send(**user: str) -> Any:
        topic = {"nameserver": server.nameserver, "topic": "orders", "count": 1, "prefix": "k"}
        return java.call("send", **topic, **user)

    java.call(
        "mqadmin",
        arguments=[
            "updateTopic",
            "-t",
            "orders",
            "-n",
            server.nameserver,
            "-b",
            server.broker_address,
        ],
        **ROOT,
    )
    assert "success" in mqadmin("createUser", "-u", "alice", "-p", ALICE["secretKey"])
    assert "alice" in mqadmin("listUser")
    assert "alice" in mqadmin("getUser", "-u", "alice")
    with pytest.raises(JavaClientError):
        send(**ALICE)
    rule = ("-s", "User:alice", "-r", "Topic:orders", "-a", "Pub", "-i", "127.0.0.1", "-d", "Allow")
    assert "success" in mqadmin("createAcl", *rule)
    assert "Topic:orders" in mqadmin("getAcl", "-s", "User:alice")
    assert "Topic:orders" in mqadmin("listAcl")
    assert len(send(**ALICE)) == 1
    for wrong in (ALICE | {"secretKey": "another secret"}, {}):
        with pytest.raises(JavaClientError):
            send(**wrong)
    denial = (*rule[:-1], "Deny")
    assert "success" in mqadmin("updateAcl", *denial)
    with pytest.raises(JavaClientError):
        send(**ALICE)
    assert "success" in mqadmin("deleteAcl", "-s", "User:alice", "-r", "Topic:orders")
    assert "success" in mqadmin("updateUser", "-u", "alice", "-t", "Super")
    assert len(send(**ALICE)) == 1
    assert "success" in mqadmin("deleteUser", "-u", "alice")
    with pytest.raises(JavaClientError):
        send(**ALICE)


def test_who_has_the_documented_rights_sends_and_consumes(java: JavaClient, server: Any) -> None:
    sender, reader = (
        "a producer",
        "a consumer: ours, RocketMQ's and those of gRPC, by pull or by pop",
    )

    async def prepare() -> None:
        root = Credentials(ROOT["accessKey"], ROOT["secretKey"])
        async with Admin(server.nameserver, credentials=root) as admin:
            await admin.create_topic("orders", queues=1)
            for name, who in (("sender", sender), ("reader", reader)):
                await admin.accounts.add_user(name, ALICE["secretKey"])
                for resource, actions in documented_rights()[who]:
                    await admin.accounts.add_rule(name, resource, actions, is_allowed=True)

    asyncio.run(prepare())
    job = {"nameserver": server.nameserver, "topic": "orders", "secretKey": ALICE["secretKey"]}
    java.call("send", **job, accessKey="sender", count=3, prefix="k")
    got = java.call("consume", **job, accessKey="reader", group="billing", count=3)
    assert len(got["messages"]) == 3
