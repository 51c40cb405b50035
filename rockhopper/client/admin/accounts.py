"""Users and rules of brokers: each master has its own, and all that are asked get the same."""

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
    """What administrators do with users and rules; `broker` limits it to one, by name or address.

    Everything raises RequestRefusedError when a broker refuses, and what `Admin.masters` raises.
    """

    def __init__(self, session: Session, masters: Masters) -> None:
        self._session = session
        self._masters = masters

    async def add_user(
        self, name: str, secret: str, *, is_super: bool = False, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Make a user; returns where that was."""
        info = {"username": name, "password": secret, "userType": _kind(is_super=is_super)}
        return await self._tell(RequestCode.AUTH_CREATE_USER, {"username": name}, info, broker)

    async def change_secret(
        self, name: str, secret: str, *, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Give a user another secret; whoever acts in his name is let go."""
        info = {"username": name, "password": secret}
        return await self._tell(RequestCode.AUTH_UPDATE_USER, {"username": name}, info, broker)

    async def remove_user(self, name: str, *, broker: str | None = None) -> list[BrokerAddress]:
        """Delete a user and his rules; none is fine."""
        return await self._tell(RequestCode.AUTH_DELETE_USER, {"username": name}, None, broker)

    async def users(self, *, broker: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """(broker name, RocketMQ's UserInfo) of every user."""
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
        """Allow or deny a user something, besides what rules about the same resource say.

        What they say to the contrary goes; with `replaces` they all go.

        `resource` is `*`, `Topic:name`, `Topic:prefix*` and the same with Group, Cluster and Sink;
        `actions` are RocketMQ's names, or All; `sources` addresses and networks, all without any.
        Rules of the policy Custom come before those of Default.
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
        """Make an account of a plain_acl.yml a user with its rules."""
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
        """Delete the rules of a user, or those about one resource."""
        fields = {"subject": SUBJECT + name} | ({"resource": resource} if resource else {})
        return await self._tell(RequestCode.AUTH_DELETE_ACL, fields, None, broker)

    async def rules(
        self, name: str = "", *, broker: str | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """(broker name, RocketMQ's AclInfo) of every user whose name begins so."""
        found = await self._ask(
            RequestCode.AUTH_LIST_ACL, {"subjectFilter": SUBJECT + name}, broker
        )
        return [each for each in found if not name or each[1]["subject"] == SUBJECT + name]

    async def decision(
        self, name: str, action: str, resource: str, host: str, *, broker: str | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """(broker name, {"isAllowed": …, "why": …}): what would be decided, and which rule does."""
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
