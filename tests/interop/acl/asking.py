"""Signed requests to servers of either make, and whether each was allowed.

An answer is "allowed" when whoever asked got past the permissions, whatever came of the request
then; else it is the response code of the refusal.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

from rockhopper.protocol.codes import MQ_VERSION, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.signing import Credentials, sign_fields
from tests.interop.acl.requests import Act
from tests.support.hang import HANG_S
from tests.support.wire import WireClient

ROOT = Credentials("root", "the secret of root")
SECRET = "the secret of tests"
ALLOWED = "allowed"
_LATER = ("user is existed", "not exist", "exists already", "in black list")
"""What is refused by the same code, but to those who are allowed to ask."""

_AUTH = "org.apache.rocketmq.auth"
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "recallMessageEnable": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ROOT.access_key, "secretKey": ROOT.secret}
    ),
}
"""Those of a server of ours."""
APACHE_SETTINGS = {
    **SETTINGS,
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}


class Entry(NamedTuple):
    """A rule as mqadmin's users write it."""

    resource: str
    actions: str
    decision: str = "Allow"
    source_ips: tuple[str, ...] = ()
    policy: str = "Custom"

    def document(self) -> dict[str, Any]:
        """What a server is sent."""
        entry = {
            "resource": [self.resource],
            "actions": self.actions.split(","),
            "sourceIps": list(self.source_ips),
            "decision": self.decision,
        }
        return {"policyType": self.policy, "entries": [entry]}


class Caller:
    """Asks in the name of users, by one connection."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    async def ask(self, act: Act, credentials: Credentials | None = ROOT) -> Command:
        """Send a request, signed where there are credentials, and wait for the answer."""
        ext = act.ext
        if credentials is not None:
            ext = sign_fields(credentials, ext, act.body, MQ_VERSION)
        async with asyncio.timeout(HANG_S):
            return await self._wire.send(act.code, ext, act.body)

    async def verdict(self, act: Act, credentials: Credentials | None) -> str:
        """What came of it."""
        answer = await self.ask(act, credentials)
        remark = answer.remark or ""
        if answer.code == ResponseCode.NO_PERMISSION and not any(map(remark.__contains__, _LATER)):
            return str(answer.code)
        return ALLOWED

    async def verdicts(
        self, acts: Mapping[str, Act], credentials: Credentials | None
    ) -> dict[str, str]:
        """What came of each, asked one after another.

        Apache's broker crashes (SIGSEGV) when it cleans consume queues while a topic is deleted.
        """
        return {name: await self.verdict(act, credentials) for name, act in acts.items()}

    async def add_user(self, name: str, entries: Iterable[Entry] = (), **info: str) -> None:
        """Make a user with these rules, in their order."""
        user = {"username": name, "password": SECRET, "userType": "Normal", **info}
        await self._done(RequestCode.AUTH_CREATE_USER, {"username": name}, user)
        if "userStatus" in info:  # which Apache's broker reads in updates alone
            await self._done(RequestCode.AUTH_UPDATE_USER, {"username": name}, user)
        for entry in entries:
            await self.add_rules(name, entry)

    async def add_rules(self, name: str, *entries: Entry) -> None:
        """Give a user rules by one request, which may contend at one resource."""
        rules = {"subject": f"User:{name}", "policies": [each.document() for each in entries]}
        await self._done(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, rules)

    async def _done(self, code: RequestCode, ext: dict[str, str], document: object) -> None:
        answer = await self.ask(Act(code, ext, json.dumps(document).encode()))
        assert answer.code == 0, (code, document, answer)


@contextlib.asynccontextmanager
async def calling(address: str, source: str = "127.0.0.1") -> AsyncIterator[Caller]:
    """A connection to *address* from *source*, an address of this host."""
    async with WireClient(address, source=source) as wire:
        yield Caller(wire)
