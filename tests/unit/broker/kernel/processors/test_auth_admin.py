"""Codes 3001 to 3010: users and rules, and who may change whom."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.accounts import User
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.names import STATE_TOPIC
from tests.support.features import NAMES
from tests.support.peers import Clock, UsersPeer
from tests.support.served_broker import ServedBroker

RULES = {
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {
                    "resource": "Topic:orders*",
                    "actions": ["Pub"],
                    "sourceIps": ["10.0.0.0/8"],
                    "decision": "Allow",
                }
            ],
        }
    ]
}


class Admin:
    """Somebody who asks with these codes."""

    def __init__(self, broker: ServedBroker, user: str = "", host: str = "127.0.0.1") -> None:
        self._broker = broker
        self._peer = UsersPeer(host, user)

    async def ask(self, code: Code, body: Any = None, **ext: str) -> Command:
        data = b"" if body is None else json.dumps(body).encode()
        return await self._broker.ask(code, ext, data, peer=self._peer)


@pytest.fixture
def admin(broker: ServedBroker) -> Admin:
    return Admin(broker)


async def create(admin: Admin, name: str = "alice", **info: str) -> Command:
    body = {"username": name, "password": "alice's secret", "userType": "Normal", **info}
    return await admin.ask(Code.AUTH_CREATE_USER, body, username=name)


async def test_a_user_is_made_shown_changed_and_deleted(broker: ServedBroker, admin: Admin) -> None:
    assert (await create(admin)).code == ResponseCode.SUCCESS
    assert (await create(admin)).code == ResponseCode.NO_PERMISSION
    shown = json.loads((await admin.ask(Code.AUTH_GET_USER, username="alice")).body)
    assert shown == {
        "username": "alice",
        "password": "alice's secret",
        "userType": "Normal",
        "userStatus": "enable",
    }
    disable = {"userStatus": "disable"}
    assert (await admin.ask(Code.AUTH_UPDATE_USER, disable, username="alice")).code == 0
    assert broker.tables.users.users["alice"] == User("alice", "alice's secret", False, False)
    listed = json.loads((await admin.ask(Code.AUTH_LIST_USER, filter="lic")).body)
    assert [each["username"] for each in listed] == ["alice"]
    assert json.loads((await admin.ask(Code.AUTH_LIST_USER, filter="bob")).body) == []
    assert (await admin.ask(Code.AUTH_DELETE_USER, username="alice")).code == 0
    assert (await admin.ask(Code.AUTH_GET_USER, username="alice")).body == b""


async def test_rules_are_made_shown_replaced_and_deleted(
    broker: ServedBroker, admin: Admin
) -> None:
    await create(admin)
    subject = "User:alice"
    for code in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL):
        assert (await admin.ask(code, RULES, subject=subject)).code == ResponseCode.SUCCESS
    shown = json.loads((await admin.ask(Code.AUTH_GET_ACL, subject=subject)).body)
    assert shown == {"subject": subject, **RULES}
    for filters, count in (
        ({"subjectFilter": "ali", "resourceFilter": "orders"}, 1),
        ({"subjectFilter": "bob"}, 0),
        ({"resourceFilter": "Group"}, 0),
    ):
        found = json.loads((await admin.ask(Code.AUTH_LIST_ACL, **filters)).body)
        assert len(found) == count
    other = await admin.ask(Code.AUTH_DELETE_ACL, subject=subject, resource="Topic:other")
    assert other.code == ResponseCode.SUCCESS
    assert len(broker.tables.acls.rules["alice"]) == 1
    await admin.ask(
        Code.AUTH_DELETE_ACL, subject=subject, policyType="Custom", resource="Topic:orders*"
    )
    assert "alice" not in broker.tables.acls.rules
    assert (await admin.ask(Code.AUTH_GET_ACL, subject=subject)).body == b""


async def test_rules_may_name_resources_of_the_features_that_exist(
    broker: ServedBroker, admin: Admin
) -> None:
    await create(admin)
    rules = json.loads(json.dumps(RULES).replace("Topic:orders*", "sink:nightly"))
    answer = await admin.ask(Code.AUTH_CREATE_ACL, rules, subject="User:alice")
    if "sinks" in NAMES:
        assert answer.code == ResponseCode.SUCCESS
        shown = json.loads((await admin.ask(Code.AUTH_GET_ACL, subject="User:alice")).body)
        assert shown["policies"][0]["entries"][0]["resource"] == "Sink:nightly"
    else:
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "'sink:nightly' is not a resource" in (answer.remark or "")


async def test_rules_go_with_their_user(broker: ServedBroker, admin: Admin) -> None:
    await create(admin)
    await admin.ask(Code.AUTH_CREATE_ACL, RULES, subject="User:alice")
    await admin.ask(Code.AUTH_DELETE_USER, username="alice")
    assert broker.tables.acls.rules == {}


@pytest.mark.parametrize(
    ("code", "body", "ext", "expected"),
    [
        (Code.AUTH_CREATE_USER, {"password": "x"}, {"username": "a b"}, 29),
        (Code.AUTH_CREATE_USER, {}, {"username": "bob"}, 29),
        (Code.AUTH_CREATE_USER, {"password": "x", "userType": "King"}, {"username": "b"}, 29),
        (Code.AUTH_CREATE_USER, {"password": "x", "userStatus": "off"}, {"username": "b"}, 29),
        (Code.AUTH_CREATE_USER, ["x"], {"username": "bob"}, 29),
        (Code.AUTH_UPDATE_USER, {}, {"username": "nobody"}, ResponseCode.USER_NOT_EXIST),
        (Code.AUTH_CREATE_ACL, RULES, {"subject": "User:nobody"}, ResponseCode.USER_NOT_EXIST),
        (Code.AUTH_CREATE_ACL, RULES, {"subject": "alice"}, 29),
        (Code.AUTH_CREATE_ACL, {}, {"subject": "User:alice"}, 29),
        (Code.AUTH_DELETE_ACL, None, {"subject": "User:alice", "resource": "x"}, 0),
    ],
)
async def test_what_makes_no_sense_is_refused(
    admin: Admin, code: Code, body: Any, ext: dict[str, str], expected: int
) -> None:
    await create(admin)
    assert (await admin.ask(code, body, **ext)).code == expected


@pytest.mark.parametrize("code", [Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER])
async def test_a_body_that_names_another_user_than_the_header_is_refused(
    broker: ServedBroker, admin: Admin, code: Code
) -> None:
    await create(admin)
    users = dict(broker.tables.users.users)
    name = "bob" if code == Code.AUTH_CREATE_USER else "alice"
    refused = await admin.ask(code, {"username": "eve", "password": "x" * 12}, username=name)
    assert refused.code == 29
    assert refused.remark == f"the header's username is {name}, the body's is eve: name one user"
    assert broker.tables.users.users == users
    repeated = {"username": name, "password": "x" * 12}
    assert (await admin.ask(code, repeated, username=name)).code == ResponseCode.SUCCESS


async def test_rules_whose_body_names_another_user_than_the_header_are_refused(
    broker: ServedBroker, admin: Admin
) -> None:
    await create(admin)
    for_eve = {**RULES, "subject": "User:eve"}
    refused = await admin.ask(Code.AUTH_CREATE_ACL, for_eve, subject="User:alice")
    assert refused.code == 29
    assert "the body's is User:eve: name one user" in (refused.remark or "")
    assert broker.tables.acls.rules == {}
    for_alice = {**RULES, "subject": "User:alice"}
    assert (await admin.ask(Code.AUTH_CREATE_ACL, for_alice, subject="User:alice")).code == 0


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    """A broker that serves users alone: root is Super, clerk is not."""
    made = ServedBroker(
        tmp_path / "strict",
        Clock(),
        {"authenticationEnabled": "true"},
        AccessRules(remote_admin=True),
    )
    made.tables.users.store_user(User("root", "root's own secret", is_super=True))
    made.tables.users.store_user(User("clerk", "clerk's own secret"))
    yield made
    await made.close()


async def test_super_users_are_changed_by_super_users_alone(strict: ServedBroker) -> None:
    clerk, root = Admin(strict, "clerk"), Admin(strict, "root")
    assert (await create(clerk, userType="Super")).code == ResponseCode.NO_PERMISSION
    for code, body in (
        (Code.AUTH_UPDATE_USER, {"password": "mine from now on"}),
        (Code.AUTH_DELETE_USER, None),
    ):
        assert (await clerk.ask(code, body, username="root")).code == ResponseCode.NO_PERMISSION
    rules = await clerk.ask(Code.AUTH_CREATE_ACL, RULES, subject="User:root")
    assert rules.code == ResponseCode.NO_PERMISSION
    promoted = {"userType": "Super"}
    refused = await clerk.ask(Code.AUTH_UPDATE_USER, promoted, username="clerk")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert (await root.ask(Code.AUTH_UPDATE_USER, promoted, username="clerk")).code == 0


async def test_the_last_super_user_stays(strict: ServedBroker) -> None:
    root = Admin(strict, "root")
    for code, body in (
        (Code.AUTH_DELETE_USER, None),
        (Code.AUTH_UPDATE_USER, {"userStatus": "disable"}),
        (Code.AUTH_UPDATE_USER, {"userType": "Normal"}),
    ):
        answer = await root.ask(code, body, username="root")
        assert (answer.code, "last Super user" in str(answer.remark)) == (16, True)


@pytest.mark.parametrize(
    ("user", "host", "is_shown"),
    [("root", "127.0.0.1", True), ("root", "10.0.0.9", False), ("clerk", "127.0.0.1", False)],
)
async def test_secrets_are_shown_to_super_users_on_this_host(
    strict: ServedBroker, user: str, host: str, is_shown: bool
) -> None:
    answer = await Admin(strict, user, host).ask(Code.AUTH_GET_USER, username="clerk")
    assert ("password" in json.loads(answer.body)) is is_shown


async def test_what_no_rule_opens_is_explained_as_it_is_decided(admin: Admin) -> None:
    await create(admin)
    asked = {"username": "alice", "action": "Sub", "host": "10.0.0.1"}
    for topic, is_allowed in (("orders", True), (STATE_TOPIC, False)):
        answer = await admin.ask(Code.EXPLAIN_ACCESS, resource=f"Topic:{topic}", **asked)
        assert json.loads(answer.body)["isAllowed"] is is_allowed
