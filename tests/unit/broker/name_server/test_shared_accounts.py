"""Whom a name server that runs alone knows by its brokers."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.broker.kernel.tables.accounts import user_to_json
from rockhopper.broker.name_server.shared_accounts import BROKERS_MAX, SharedAccounts
from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.broker.users.accounts import User
from rockhopper.broker.users.errors import InvalidParameter, NoPermission
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.errors import MalformedBodyError
from tests.support.heard_users import HeardUsers

ROOT = User("root", "the secret of root", is_super=True)
ORDERS = Resource(ResourceKind.TOPIC, "orders")


def allow(resource: str) -> list[dict[str, Any]]:
    entry = {"resource": resource, "actions": ["Pub"], "sourceIps": [], "decision": "Allow"}
    return [{"policyType": "Custom", "entries": [entry]}]


class Shared:
    """The guard of a name server with one user of its own, and what brokers share."""

    def __init__(self) -> None:
        self.guard = Guard(remote_admin=False, authenticates=True, authorizes=True)
        self.guard.use({"root": ROOT}, {})
        self.heard = HeardUsers()
        self.guard.listeners.append(self.heard)
        self.accounts = SharedAccounts(self.guard)
        self.accounts.set_own_accounts({"root": ROOT}, {})

    def share(
        self, broker: str, *users: User, acls: dict[str, Any] | None = None, by: str = "root"
    ) -> None:
        document = {"users": {each.name: user_to_json(each) for each in users}, "acls": acls or {}}
        self.ask(broker, json.dumps(document).encode(), by)

    def ask(self, broker: str, body: bytes, by: str = "root") -> None:
        request: Any = SimpleNamespace(
            principal=Principal("10.0.0.1", by), ext={"brokerName": broker}, body=body
        )
        self.accounts.share(request)

    def may(self, user: str) -> bool:
        return self.guard.may(Principal("10.0.0.9", user), Action.PUB, ORDERS)


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_users_and_rules_of_brokers_decide(shared: Shared) -> None:
    assert not shared.may("al")
    shared.share("b-0", User("al", "one"), acls={"al": allow("Topic:orders")})
    assert shared.may("al")
    assert shared.may("root")
    shared.share("b-0")
    assert not shared.may("al")
    assert shared.heard.users == ["al"]


def test_who_is_known_to_several_is_who_the_first_says(shared: Shared) -> None:
    shared.share("b-1", User("al", "two"), acls={"al": allow("Topic:orders")})
    shared.share("b-0", User("al", "one"), User("root", "another"))
    assert shared.guard.users == {"root": ROOT, "al": User("al", "one")}
    assert not shared.may("al")
    assert shared.heard.users == ["al"]


def test_a_super_user_alone_shares(shared: Shared) -> None:
    shared.share("b-0", User("al", "one"), acls={"al": allow("*")})
    for asker in ("al", "", "nobody"):
        with pytest.raises(NoPermission):
            shared.share("b-0", User("al", "one", is_super=True), by=asker)
    assert not shared.guard.is_super(Principal("10.0.0.9", "al"))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"users": {}, "acls": 1}', b'{"users": {"al": 7}, "acls": {}}']
)
def test_what_makes_no_sense_changes_nothing(shared: Shared, body: bytes) -> None:
    shared.share("b-0", User("al", "one"))
    with pytest.raises((InvalidParameter, MalformedBodyError)):
        shared.ask("b-0", body)
    with pytest.raises(InvalidParameter):
        shared.ask("", b'{"users": {}, "acls": {}}')
    assert "al" in shared.guard.users


def test_so_many_brokers_are_known_and_no_more(shared: Shared) -> None:
    for number in range(BROKERS_MAX):
        shared.share(f"b-{number}")
    with pytest.raises(InvalidParameter):
        shared.share("one more")
    shared.share("b-0")
