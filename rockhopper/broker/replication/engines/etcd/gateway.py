"""Requests to an etcd of several endpoints, of which each failure may be another's success.

A request that may be repeated goes to the next endpoint when one fails; any other is made once, and
again only where it is certain that it was not done. Answers about keys are linearizable.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from rockhopper.broker.replication.engines.consensus.connection import HttpRequest, StatusError
from rockhopper.broker.replication.engines.consensus.connections import (
    Connections,
    RefusedError,
    Tls,
    UnavailableError,
)
from rockhopper.broker.replication.engines.etcd.forms import (
    AUTHENTICATE,
    PUT,
    RANGE,
    TXN,
    WATCH,
    Answer,
    Body,
    Refusal,
    TokenAnswer,
    WatchLine,
    WatchResult,
    decoded,
)
from rockhopper.broker.replication.engines.etcd.horizon import FromThePastError, Horizon
from rockhopper.broker.server.listening.renewed_files import current

DEFAULT_PORT = 2379

_Form = TypeVar("_Form")
_LINEARIZABLE = (RANGE, TXN, PUT)
_TOKEN_IS_OVER = ("invalid auth token", "revision of auth store is old")
_HINTS = {
    "authentication failed": "correct haEngineUser and haEnginePasswordFile",
    "authentication is not enabled": "enable it, or leave out haEngineUser",
    "user name is empty": "set haEngineUser and haEnginePasswordFile",
    "permission denied": "grant a role of haEngineUser readwrite on the keys of the set",
    "database space exceeded": "compact and defragment it, then disarm its alarm",
    "Not Found": "is it etcd 3.4 or later, with its gRPC gateway on?",
}


class _TokenIsOverError(Exception):
    """The token has to be got anew."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where an etcd is and who asks, by names as its users know them."""

    endpoints: Sequence[str]
    """``host:port``."""
    user: str = ""
    password: str | Callable[[], str] = ""
    tls: Tls = None


class EtcdGateway:
    """One etcd, asked by one event loop."""

    def __init__(self, access: Access, *, timeout_ms: int = 1000, silence_ms: int = 20_000) -> None:
        """For *timeout_ms* and *silence_ms* see Connections."""
        self._access = access
        self._connections = Connections(
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
        """Whether nothing can be asked any more."""
        return self._connections.is_closed

    async def ask(
        self, path: str, body: Body, form: type[_Form], *, may_repeat: bool = True
    ) -> _Form:
        """Make a request.

        Raises:
            RefusedError: etcd did not do it.
            UnavailableError: no endpoint answered; ``may_be_done`` says whether it may have been.
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
        """Yield what a watch tells, until it is canceled or silent; raises as ``ask``."""
        endpoint = self._access.endpoints[self._current]
        body = _encoded({"create_request": create_request})
        try:
            token = await self._authenticated(endpoint)
            request = HttpRequest("POST", WATCH, body, token)
            async with aclosing(self._lines(endpoint, request)) as lines:
                async for line in lines:
                    yield self._watched(endpoint, line)
        except _TokenIsOverError:
            self._token = ""
        except UnavailableError:
            self._leave(endpoint)
            raise

    async def close(self) -> None:
        """Close all connections; what is under way fails."""
        await self._connections.close()

    def _leave(self, endpoint: str) -> None:
        """Ask the next one, unless somebody has moved on already."""
        if self._access.endpoints[self._current] == endpoint:
            self._current = (self._current + 1) % len(self._access.endpoints)

    async def _ask_endpoint(self, endpoint: str, path: str, body: Body, form: type[_Form]) -> _Form:
        for _ in range(2):
            token = await self._authenticated(endpoint)
            departed = self._horizon.seen
            try:
                answer = await self._post(endpoint, path, body, form, token)
            except _TokenIsOverError:
                if self._token == token:
                    self._token = ""
                continue
            if path in _LINEARIZABLE and isinstance(answer, Answer):
                try:
                    self._horizon.take(answer.header, departed)
                except FromThePastError as error:
                    raise UnavailableError(f"{endpoint}: {error}", may_be_done=True) from None
            return answer
        raise RefusedError(f"{endpoint} takes no token, not even a new one")

    async def _authenticated(self, endpoint: str) -> str:
        """The token, got anew if there is none; empty without a user."""
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
        request = HttpRequest("POST", path, _encoded(body), token)
        try:
            return decoded(await self._connections.ask(endpoint, request), form)
        except msgspec.MsgspecError as error:
            raise self._connections.failed(endpoint, error) from None
        except StatusError as error:
            raise _refused(endpoint, error) from None

    async def _lines(self, endpoint: str, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._connections.stream(endpoint, request)) as lines:
                async for line in lines:
                    yield line
        except StatusError as error:
            raise _refused(endpoint, error) from None

    def _watched(self, endpoint: str, line: bytes) -> WatchResult:
        try:
            told = decoded(line, WatchLine)
        except msgspec.MsgspecError as error:
            raise self._connections.failed(endpoint, error) from None
        if told.result is None:
            why = told.error.message if told.error else "an empty line"
            raise UnavailableError(f"{endpoint}: the watch ended: {why}", may_be_done=False)
        return told.result


def _encoded(body: Body) -> bytes:
    return msgspec.json.encode(body)


def _refused(endpoint: str, error: StatusError) -> Exception:
    try:
        message = decoded(error.body, Refusal).message
    except msgspec.MsgspecError:
        message = ""
    message = message or error.body[:200].decode(errors="replace") or f"HTTP {error.status}"
    if any(each in message for each in _TOKEN_IS_OVER):
        return _TokenIsOverError()
    if error.status >= 500:
        return UnavailableError(f"{endpoint}: {message}", may_be_done=True)
    hint = next((f": {hint}" for part, hint in _HINTS.items() if part in message), "")
    return RefusedError(f"{endpoint} refuses: {message}{hint}")
