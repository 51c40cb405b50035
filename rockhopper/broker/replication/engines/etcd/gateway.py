"""Requests to an etcd with several endpoints.

A repeatable request goes to the next endpoint after a failure. Any other request is repeated only
if it certainly was not executed. Answers about keys are linearizable.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from rockhopper.broker.replication.engines.consensus.connection import (
    HttpStatusError,
    ServiceRequest,
)
from rockhopper.broker.replication.engines.consensus.connections import (
    ServiceConnections,
    ServiceRefusedError,
    Tls,
    UnavailableError,
)
from rockhopper.broker.replication.engines.etcd.forms import (
    AUTHENTICATE,
    PUT,
    RANGE,
    TXN,
    WATCH,
    Body,
    ErrorBody,
    EtcdAnswer,
    TokenAnswer,
    WatchLine,
    WatchResult,
    decode,
)
from rockhopper.broker.replication.engines.etcd.horizon import FromThePastError, Horizon
from rockhopper.broker.server.listening.renewed_files import current

DEFAULT_PORT = 2379

_Form = TypeVar("_Form")
_LINEARIZABLE = (RANGE, TXN, PUT)
_TOKEN_IS_OVER = ("invalid auth token", "revision of auth store is old")
_HINTS = {
    "authentication failed": "correct haEngineUser and haEnginePasswordFile",
    "authentication is not enabled": "enable it, or remove haEngineUser",
    "user name is empty": "set haEngineUser and haEnginePasswordFile",
    "permission denied": "grant a role of haEngineUser readwrite permission on the keys of the set",
    "database space exceeded": "compact and defragment it, then disarm its alarm",
    "Not Found": "is it etcd 3.4 or later, with its gRPC gateway enabled?",
}


class _TokenIsOverError(Exception):
    """The token has expired and must be renewed."""


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """The address of an etcd and the credentials; the names are those of etcd's own settings."""

    endpoints: Sequence[str]
    """Each ``host:port``."""
    user: str = ""
    password: str | Callable[[], str] = ""
    tls: Tls = None


class EtcdGateway:
    """Access to one etcd from one event loop."""

    def __init__(
        self, access: EtcdAccess, *, timeout_ms: int = 1000, silence_ms: int = 20_000
    ) -> None:
        """Connections explains *timeout_ms* and *silence_ms*."""
        self._access = access
        self._connections = ServiceConnections(
            default_port=DEFAULT_PORT,
            tls=access.tls,
            timeout_ms=timeout_ms,
            silence_ms=silence_ms,
        )
        self._current = 0
        self._token = ""
        self._authenticating = asyncio.Lock()
        self._horizon = Horizon()

    @property
    def is_closed(self) -> bool:
        """Whether the gateway is closed to requests."""
        return self._connections.is_closed

    async def ask(
        self, path: str, body: Body, form: type[_Form], *, may_repeat: bool = True
    ) -> _Form:
        """Send a request.

        Raises:
            ServiceRefusedError: etcd refused it and did not execute it.
            UnavailableError: no endpoint answered; ``may_be_done`` is set if one may have executed
            it.
        """
        failures: list[str] = []
        may_be_done = False
        for _ in self._access.endpoints:
            endpoint = self._access.endpoints[self._current]
            try:
                return await self._ask_endpoint(endpoint, path, body, form)
            except UnavailableError as error:
                self._leave(endpoint)
                failures.append(str(error))
                may_be_done = may_be_done or error.may_be_done
                if may_be_done and not may_repeat:
                    break
        raise UnavailableError("; ".join(failures), may_be_done=may_be_done)

    async def watch(self, create_request: Body) -> AsyncGenerator[WatchResult, None]:
        """Yield the results of a watch until it is canceled or silent; raises as ``ask``."""
        endpoint = self._access.endpoints[self._current]
        body = _encode({"create_request": create_request})
        try:
            token = await self._authenticate(endpoint)
            request = ServiceRequest("POST", WATCH, body, token)
            async with aclosing(self._lines(endpoint, request)) as lines:
                async for line in lines:
                    yield self._read_watch(endpoint, line)
        except _TokenIsOverError:
            self._token = ""
        except UnavailableError:
            self._leave(endpoint)
            raise

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        await self._connections.close()

    def _leave(self, endpoint: str) -> None:
        """Switch to the next endpoint, unless another request has already done so."""
        if self._access.endpoints[self._current] == endpoint:
            self._current = (self._current + 1) % len(self._access.endpoints)

    async def _ask_endpoint(self, endpoint: str, path: str, body: Body, form: type[_Form]) -> _Form:
        for _ in range(2):
            token = await self._authenticate(endpoint)
            departed = self._horizon.seen
            try:
                answer = await self._post(endpoint, path, body, form, token)
            except _TokenIsOverError:
                if self._token == token:
                    self._token = ""
                continue
            if path in _LINEARIZABLE and isinstance(answer, EtcdAnswer):
                try:
                    self._horizon.record(answer.header, departed)
                except FromThePastError as error:
                    raise UnavailableError(f"{endpoint}: {error}", may_be_done=True) from None
            return answer
        raise ServiceRefusedError(f"{endpoint} refuses every token, even a new one")

    async def _authenticate(self, endpoint: str) -> str:
        """Return the token, after fetching one if necessary; empty without a user."""
        access = self._access
        async with self._authenticating:
            if access.user and not self._token:
                body: Body = {"name": access.user, "password": current(access.password)}
                answer = await self._post(endpoint, AUTHENTICATE, body, TokenAnswer, "")
                self._token = answer.token
            return self._token

    async def _post(
        self, endpoint: str, path: str, body: Body, form: type[_Form], token: str
    ) -> _Form:
        request = ServiceRequest("POST", path, _encode(body), token)
        try:
            return decode(await self._connections.ask(endpoint, request), form)
        except msgspec.MsgspecError as error:
            raise self._connections.build_failure(endpoint, error) from None
        except HttpStatusError as error:
            raise _build_refusal(endpoint, error) from None

    async def _lines(self, endpoint: str, request: ServiceRequest) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._connections.stream(endpoint, request)) as lines:
                async for line in lines:
                    yield line
        except HttpStatusError as error:
            raise _build_refusal(endpoint, error) from None

    def _read_watch(self, endpoint: str, line: bytes) -> WatchResult:
        try:
            told = decode(line, WatchLine)
        except msgspec.MsgspecError as error:
            raise self._connections.build_failure(endpoint, error) from None
        if told.result is None:
            why = told.error.message if told.error else "an empty line"
            raise UnavailableError(f"{endpoint}: the watch ended: {why}", may_be_done=False)
        return told.result


def _encode(body: Body) -> bytes:
    return msgspec.json.encode(body)


def _build_refusal(endpoint: str, error: HttpStatusError) -> Exception:
    try:
        message = decode(error.body, ErrorBody).message
    except msgspec.MsgspecError:
        message = ""
    message = message or error.body[:200].decode(errors="replace") or f"HTTP {error.status}"
    if any(each in message for each in _TOKEN_IS_OVER):
        return _TokenIsOverError()
    if error.status >= 500:
        return UnavailableError(f"{endpoint}: {message}", may_be_done=True)
    hint = next((f": {hint}" for part, hint in _HINTS.items() if part in message), "")
    return ServiceRefusedError(f"{endpoint} refuses: {message}{hint}")
