"""Users and access rules of brokers.

Each master stores its own, so every change is sent to all masters.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rockhopper.client.admin.plain_acl import PlainAccount
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.session import Session
from rockhopper.protocol.codes import RequestCode

Masters = Callable[[str | None], Awaitable[list[BrokerAddress]]]
SUBJECT = "User:"


class Accounts:
    """Manages users and access rules; `broker` limits a call to one broker, by name or address.

    All methods raise RequestRefusedError if a broker refuses, and the errors of `Admin.masters`.
    """

    def __init__(self, session: Session, masters: Masters) -> None:
        self._session = session
        self._masters = masters

    async def add_user(
        self, name: str, secret: str, *, is_super: bool = False, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Create a user; return the brokers that did so."""
        info = {"username": name, "password": secret, "userType": _kind(is_super=is_super)}
        return await self._tell(RequestCode.AUTH_CREATE_USER, {"username": name}, info, broker)

    async def change_secret(
        self, name: str, secret: str, *, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Change a user's secret; brokers close connections authenticated with the old one."""
        info = {"username": name, "password": secret}
        return await self._tell(RequestCode.AUTH_UPDATE_USER, {"username": name}, info, broker)

    async def remove_user(self, name: str, *, broker: str | None = None) -> list[BrokerAddress]:
        """Delete a user and their rules; a missing user is no error."""
        return await self._tell(RequestCode.AUTH_DELETE_USER, {"username": name}, None, broker)

    async def users(self, *, broker: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return (broker name, RocketMQ's UserInfo) for every user."""
        return await self._ask(RequestCode.AUTH_LIST_USER, {}, broker)

    async def add_rule(
        self,
        name: str,
        resource: str,
        actions: Sequence[str],
        *,
        is_allowed: bool,
        sources: Sequence[str] = (),
        policy: str = "Custom",
        replaces: bool = False,
        broker: str | None = None,
    ) -> list[BrokerAddress]:
        """Allow or deny a user some actions on a resource, in addition to existing rules.

        Existing rules about the same resource that contradict the new one are removed; with
        `replaces` all of them are. `resource` is `*`, `Topic:name`, `Topic:prefix*` and the same
        with Group, Cluster and Sink. `actions` are RocketMQ's names, or All. `sources` are
        addresses and networks; without any, all are covered. Rules of the policy Custom take
        precedence over those of Default.
        """
        entry = {
            "resource": resource,
            "actions": list(actions),
            "sourceIps": list(sources),
            "decision": "Allow" if is_allowed else "Deny",
        }
        info = {"policies": [{"policyType": policy, "entries": [entry]}]}
        fields = {"subject": SUBJECT + name, **({} if replaces else {"adds": "true"})}
        return await self._tell(RequestCode.AUTH_CREATE_ACL, fields, info, broker)

    async def add_account(self, account: PlainAccount, *, broker: str | None = None) -> None:
        """Create a user with rules from an account of a plain_acl.yml file."""
        name = account.name
        await self.add_user(name, account.secret, is_super=account.is_super, broker=broker)
        for rule in account.rules:
            policy = "Default" if rule.is_default else "Custom"
            await self.add_rule(
                name,
                rule.resource,
                rule.actions,
                is_allowed=rule.is_allowed,
                policy=policy,
                replaces=True,
                broker=broker,
            )

    async def remove_rules(
        self, name: str, resource: str = "", *, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Delete the rules of a user, or only those about one resource."""
        fields = {"subject": SUBJECT + name} | ({"resource": resource} if resource else {})
        return await self._tell(RequestCode.AUTH_DELETE_ACL, fields, None, broker)

    async def rules(
        self, name: str = "", *, broker: str | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return (broker name, RocketMQ's AclInfo) for one user; for all users without a name."""
        found = await self._ask(
            RequestCode.AUTH_LIST_ACL, {"subjectFilter": SUBJECT + name}, broker
        )
        return [each for each in found if not name or each[1]["subject"] == SUBJECT + name]

    async def decision(
        self, name: str, action: str, resource: str, host: str, *, broker: str | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return (broker name, {"isAllowed": …, "why": …}): the decision and the rule behind it."""
        fields = {"username": name, "action": action, "resource": resource, "host": host}
        return await self._ask(RequestCode.EXPLAIN_ACCESS, fields, broker)

    async def _tell(
        self, code: RequestCode, fields: dict[str, str], info: object, broker: str | None
    ) -> list[BrokerAddress]:
        body = b"" if info is None else json.dumps(info).encode()
        masters = await self._masters(broker)
        for master in masters:
            await self._session.request(master.address, code, fields, body)
        return masters

    async def _ask(
        self, code: RequestCode, fields: dict[str, str], broker: str | None
    ) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for master in await self._masters(broker):
            answer = await self._session.request(master.address, code, fields)
            document = json.loads(answer.body)
            entries = document if isinstance(document, list) else [document]
            found += [(master.name, entry) for entry in entries]
        return found


def _kind(*, is_super: bool) -> str:
    return "Super" if is_super else "Normal"
