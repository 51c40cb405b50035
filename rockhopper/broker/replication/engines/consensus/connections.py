"""The connections to a service with several endpoints: reused, with time limits, closed at once.

The error of a failed request names the endpoint and the cause, and tells whether the request may
have been executed.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rockhopper.broker.replication.engines.consensus.connection import (
    HttpConnection,
    MalformedHttpError,
    ServiceRequest,
)
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.server.listening.renewed_files import current
from rockhopper.protocol.addresses import split_address

Tls = ssl.SSLContext | Callable[[], ssl.SSLContext | None] | None
"""A TLS context, or a function that returns one for the current files; None: no TLS."""


class UnavailableError(EngineError):
    """An endpoint failed; another one may succeed."""

    def __init__(self, reason: str, *, may_be_done: bool) -> None:
        super().__init__(reason)
        self.may_be_done = may_be_done


class ServiceRefusedError(EngineError):
    """The service refused a request and did not execute it; every endpoint would refuse it."""


class ServiceConnections:
    """All connections of one event loop to one service."""

    def __init__(
        self,
        *,
        default_port: int,
        tls: Tls = None,
        timeout_ms: int = 1000,
        silence_ms: int = 20_000,
    ) -> None:
        """*timeout_ms* limits both connecting to an endpoint and waiting for its answer.

        A stream ends after *silence_ms* without data, because a peer that is gone sends nothing.
        """
        self._default_port = default_port
        self._tls = tls
        self._timeout_s = timeout_ms / 1000
        self._silence_s = silence_ms / 1000
        self._idle: list[tuple[str, HttpConnection]] = []
        self._open: set[HttpConnection] = set()
        self.is_closed = False

    async def ask(self, endpoint: str, request: ServiceRequest) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            UnavailableError: there is no valid answer.
            HttpStatusError: the endpoint refused it.
        """
        connection = self._take_idle(endpoint) or await self._connect(endpoint)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await connection.ask(request)
        except (OSError, MalformedHttpError) as error:
            raise self.build_failure(endpoint, error) from None
        finally:
            self._put_back(endpoint, connection)

    async def stream(self, endpoint: str, request: ServiceRequest) -> AsyncGenerator[bytes, None]:
        """Send a request on its own connection; yield lines until the stream ends or is silent.

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

    def build_failure(self, endpoint: str, error: Exception) -> UnavailableError:
        """Return the error for an answer that is missing or invalid."""
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._timeout_s:g} s"
        elif isinstance(error, OSError):
            reason = _format_reason(error)
        else:
            reason = f"invalid answer: {error}"
        return UnavailableError(f"{endpoint}: {reason}", may_be_done=True)

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self.is_closed = True
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)
        await asyncio.sleep(0)  # asyncio closes the sockets in the next iteration of the loop.

    def _take_idle(self, endpoint: str) -> HttpConnection | None:
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
            reason = f"{endpoint} cannot be reached: {_format_reason(error)}"
            raise UnavailableError(reason, may_be_done=False) from None
        self._open.add(connection)
        if self.is_closed:
            self._drop(connection)
        return connection

    async def _next_line(
        self, endpoint: str, lines: AsyncGenerator[bytes, None], wait_s: float
    ) -> bytes:
        """Return the next line; empty at the end."""
        try:
            async with asyncio.timeout(wait_s):
                return await anext(lines, b"")
        except TimeoutError:
            return b""
        except (OSError, MalformedHttpError) as error:
            raise self.build_failure(endpoint, error) from None


def _format_reason(error: OSError) -> str:
    return str(error) or type(error).__name__
