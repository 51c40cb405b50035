"""The connections to a service of several endpoints: kept open, bounded in time, closed at once.

An answer that fails says which endpoint was asked, what was wrong, and whether the request may have
been done.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rockhopper.broker.replication.engines.consensus.connection import (
    HttpConnection,
    HttpRequest,
    MalformedAnswerError,
)
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.server.listening.renewed_files import current
from rockhopper.protocol.addresses import split_address

Tls = ssl.SSLContext | Callable[[], ssl.SSLContext | None] | None
"""How to speak TLS, or what gives it as its files are now; None: not at all."""


class UnavailableError(EngineError):
    """An endpoint failed; another one may do better."""

    def __init__(self, reason: str, *, may_be_done: bool) -> None:
        super().__init__(reason)
        self.may_be_done = may_be_done


class RefusedError(EngineError):
    """The service refused a request, which was not done; every endpoint would say so."""


class Connections:
    """All of one event loop to one service."""

    def __init__(
        self,
        *,
        default_port: int,
        tls: Tls = None,
        timeout_ms: int = 1000,
        silence_ms: int = 20_000,
    ) -> None:
        """An endpoint gets *timeout_ms* to connect, and as long to answer.

        A stream ends after *silence_ms* without a word: nobody tells of a peer that is gone.
        """
        self._default_port = default_port
        self._tls = tls
        self._timeout_s = timeout_ms / 1000
        self._silence_s = silence_ms / 1000
        self._idle: list[tuple[str, HttpConnection]] = []
        self._open: set[HttpConnection] = set()
        self.is_closed = False

    async def ask(self, endpoint: str, request: HttpRequest) -> bytes:
        """Make a request and return the body of its answer.

        Raises:
            UnavailableError: there is no answer.
            StatusError: the endpoint refused it.
        """
        connection = self._taken(endpoint) or await self._connect(endpoint)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await connection.ask(request)
        except (OSError, MalformedAnswerError) as error:
            raise self.failed(endpoint, error) from None
        finally:
            self._put_back(endpoint, connection)

    async def stream(self, endpoint: str, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Make a request on a connection of its own; yield lines until they end or it is silent.

        Raises as ``ask``.
        """
        connection = await self._connect(endpoint)
        try:
            async with aclosing(connection.stream(request)) as lines:
                wait_s = self._timeout_s
                while line := await self._next_line(endpoint, lines, wait_s):
                    yield line
                    wait_s = self._silence_s
        finally:
            self._drop(connection)

    def failed(self, endpoint: str, error: Exception) -> UnavailableError:
        """What to say of an answer that did not come, or makes no sense."""
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._timeout_s:g} s"
        elif isinstance(error, OSError):
            reason = _told(error)
        else:
            reason = f"its answer makes no sense: {error}"
        return UnavailableError(f"{endpoint}: {reason}", may_be_done=True)

    async def close(self) -> None:
        """Close all of them; what is under way fails."""
        self.is_closed = True
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)
        await asyncio.sleep(0)  # asyncio closes their sockets in the loop's next turn

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
                    host,
                    self._default_port if port is None else port,
                    self._timeout_s,
                    current(self._tls),
                )
        except TimeoutError as error:
            reason = error.strerror or f"no connection within {self._timeout_s:g} s"
            raise UnavailableError(f"{endpoint}: {reason}", may_be_done=False) from None
        except OSError as error:
            reason = f"{endpoint} cannot be reached: {_told(error)}"
            raise UnavailableError(reason, may_be_done=False) from None
        self._open.add(connection)
        if self.is_closed:
            self._drop(connection)
        return connection

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
            raise self.failed(endpoint, error) from None


def _told(error: OSError) -> str:
    return str(error) or type(error).__name__
