"""Requests to an etcd of several endpoints, and what went wrong with them in words.

A request that may be repeated goes to the next endpoint when one fails; any other is made once, and
again only where it is certain that it was not done. Answers about keys are linearizable.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from rockhopper.broker.ha.engine import EngineError
from rockhopper.broker.ha.etcd.connection import (
    HttpConnection,
    MalformedAnswerError,
    StatusError,
)
from rockhopper.broker.ha.etcd.forms import (
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
from rockhopper.broker.ha.etcd.horizon import FromThePastError, Horizon
from rockhopper.protocol.addresses import split_address

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


class UnavailableError(EngineError):
    """An endpoint failed; another one may do better."""

    def __init__(self, reason: str, *, may_be_done: bool) -> None:
        super().__init__(reason)
        self.may_be_done = may_be_done


class RefusedError(EngineError):
    """etcd refused a request, which was not done; every endpoint would say so."""


class _TokenIsOverError(Exception):
    """The token has to be got anew."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where an etcd is and who asks, by names as its users know them."""

    endpoints: Sequence[str]
    """``host:port``."""
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None


class EtcdGateway:
    """One etcd, asked by one event loop."""

    def __init__(self, access: Access, *, timeout_ms: int = 1000, silence_ms: int = 20_000) -> None:
        """An endpoint gets *timeout_ms* to connect, and as long to answer.

        A watch ends after *silence_ms* without a word: nobody tells of a peer that is gone.
        """
        self._access = access
        self._timeout_s = timeout_ms / 1000
        self._silence_s = silence_ms / 1000
        self._current = 0
        self._idle: list[tuple[str, HttpConnection]] = []
        self._open: set[HttpConnection] = set()
        self._token = ""
        self._authenticating = asyncio.Lock()
        self._horizon = Horizon()
        self.is_closed = False

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
            connection = await self._connect(endpoint)
            try:
                async with aclosing(connection.stream(WATCH, body, token)) as lines:
                    wait_s = self._timeout_s
                    while line := await self._next_line(endpoint, lines, wait_s):
                        yield self._watched(endpoint, line)
                        wait_s = self._silence_s
            finally:
                self._drop(connection)
        except _TokenIsOverError:
            self._token = ""
        except UnavailableError:
            self._leave(endpoint)
            raise

    async def close(self) -> None:
        """Close all connections; what is under way fails."""
        self.is_closed = True
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)
        await asyncio.sleep(0)  # asyncio closes their sockets in the loop's next turn

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
                body: Body = {"name": access.user, "password": access.password}
                answer = await self._post(endpoint, AUTHENTICATE, body, TokenAnswer, "")
                self._token = answer.token
            return self._token

    async def _post(
        self, endpoint: str, path: str, body: Body, form: type[_Form], token: str
    ) -> _Form:
        connection = self._taken(endpoint) or await self._connect(endpoint)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await connection.post(path, _encoded(body), token)
            return decoded(answer, form)
        except (OSError, MalformedAnswerError, msgspec.MsgspecError) as error:
            raise self._failed(endpoint, error) from None
        except StatusError as error:
            raise _refused(endpoint, error) from None
        finally:
            self._put_back(endpoint, connection)

    def _taken(self, endpoint: str) -> HttpConnection | None:
        while self._idle:
            where, connection = self._idle.pop()
            if where == endpoint and connection.is_usable:
                return connection
            self._drop(connection)
        return None

    def _put_back(self, endpoint: str, connection: HttpConnection) -> None:
        if connection.is_usable and not self.is_closed:
            self._idle.append((endpoint, connection))
        else:
            self._drop(connection)

    def _drop(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        connection.close()

    async def _connect(self, endpoint: str) -> HttpConnection:
        if self.is_closed:
            raise UnavailableError("the engine is closed", may_be_done=False)
        host, port = split_address(endpoint)
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await HttpConnection.open(
                    host, DEFAULT_PORT if port is None else port, self._access.tls
                )
        except TimeoutError:
            reason = f"{endpoint}: no connection within {self._timeout_s:g} s"
            raise UnavailableError(reason, may_be_done=False) from None
        except OSError as error:
            reason = f"{endpoint} cannot be reached: {_told(error)}"
            raise UnavailableError(reason, may_be_done=False) from None
        self._open.add(connection)
        if self.is_closed:
            self._drop(connection)
        return connection

    def _failed(self, endpoint: str, error: Exception) -> UnavailableError:
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._timeout_s:g} s"
        elif isinstance(error, OSError):
            reason = _told(error)
        else:
            reason = f"its answer makes no sense: {error}"
        return UnavailableError(f"{endpoint}: {reason}", may_be_done=True)

    async def _next_line(
        self, endpoint: str, lines: AsyncGenerator[bytes, None], wait_s: float
    ) -> bytes:
        """Empty when there will be none."""
        try:
            async with asyncio.timeout(wait_s):
                return await anext(lines, b"")
        except TimeoutError:
            return b""
        except (OSError, MalformedAnswerError) as error:
            raise self._failed(endpoint, error) from None
        except StatusError as error:
            raise _refused(endpoint, error) from None

    def _watched(self, endpoint: str, line: bytes) -> WatchResult:
        try:
            told = decoded(line, WatchLine)
        except msgspec.MsgspecError as error:
            raise self._failed(endpoint, error) from None
        if told.result is None:
            why = told.error.message if told.error else "an empty line"
            raise UnavailableError(f"{endpoint}: the watch ended: {why}", may_be_done=False)
        return told.result


def _encoded(body: Body) -> bytes:
    return msgspec.json.encode(body)


def _told(error: OSError) -> str:
    return str(error) or type(error).__name__


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
