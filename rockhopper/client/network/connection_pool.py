"""The connection pool: one connection per address, opened on demand and after it has broken.

This is the only module that dials. Concurrent callers for the same address share one attempt, and
cancelling one of them does not end the attempt for the others.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from threading import get_ident
from typing import Any

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClientStateError,
    RequestRefusedError,
    RequestTimeoutError,
    copy_error,
)
from rockhopper.client.network.addresses import split_address
from rockhopper.client.network.connection import (
    FORKS,
    BrokerConnection,
    RequestHandler,
)
from rockhopper.client.network.credentials import NOBODYS, CredentialsFile, CredentialsSource
from rockhopper.client.network.in_flight_requests import SILENCE_NOTED_S
from rockhopper.client.network.tls import TlsOptions, find_remedy
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.signing import Credentials
from rockhopper.sockets import connect, leads_elsewhere
from rockhopper.tasks import is_cancelled_alone, start_task

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 2.0
_NO_SLOT = contextlib.nullcontext()

QUESTIONS_AT_ONCE_MAX = 64
"""The maximum of concurrent requests to an address.

It applies to requests that a client sends for each of its topics, queues or groups. A broker serves
128 per connection and refuses more.
"""

_UNBOUNDED = frozenset(
    map(
        int,
        (
            # Long polls: the broker holds them, and they must not block other requests.
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.NOTIFICATION,
            # Requests that wait for a disk or a replica, one for each message of the application.
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.END_TRANSACTION,
            RequestCode.ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            # Requests that keep a client alive.
            RequestCode.HEART_BEAT,
            RequestCode.UNREGISTER_CLIENT,
        ),
    )
)


class ConnectionPool:
    """The open connections of one client.

    `on_connect` is called with every new connection before it can be used otherwise, so its
    requests leave first. `on_unreachable` is called with every address whose connection broke or
    failed. `remedies` contains for an address what to check if it is unreachable.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 3.0,
        handle_request: RequestHandler | None = None,
        credentials: CredentialsSource = NOBODYS,
        on_connect: Callable[[BrokerConnection], None] | None = None,
        on_unreachable: Callable[[str], None] = lambda _address: None,
        tls: TlsOptions | None = None,
    ) -> None:
        self.remedies: dict[str, str] = {}
        self.at_once_max: int | None = None
        """The maximum of concurrent requests to an address, of any kind.

        None: only QUESTIONS_AT_ONCE_MAX applies. The timeout of a waiting request has not begun.
        """
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._connect_timeout_s = connect_timeout_s
        self._handle_request = handle_request
        self._credentials = credentials
        self._asked_as: str | None = None
        self._on_connect = on_connect
        self._on_unreachable = on_unreachable
        self._tls = tls
        self._open: dict[str, BrokerConnection] = {}
        # Includes retiring connections, which accept no new requests.
        self._alive: set[BrokerConnection] = set()
        self._attempts: dict[str, asyncio.Task[BrokerConnection]] = {}
        # The start of each attempt, by the loop's clock.
        self._dialed_s: dict[str, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._forks = FORKS.count
        self._is_closed = False

    @property
    def connections(self) -> list[BrokerConnection]:
        """The connections that are open now."""
        return [connection for connection in self._open.values() if connection.is_open]

    def existing(self, address: str) -> BrokerConnection | None:
        """Return the open connection to `address`, or None; never dials."""
        self.check_usable()
        connection = self._open.get(address)
        return connection if connection is not None and connection.is_open else None

    async def connect(self, address: str) -> BrokerConnection:
        """Return an open connection to `address`. Raises BrokerUnreachableError."""
        connection = self.existing(address)
        if connection is not None:
            return connection
        attempt = self._attempts.get(address)
        if attempt is None:
            attempt = start_task(self._dial(address))
            self._attempts[address] = attempt
            self._dialed_s[address] = self.loop.time()
            attempt.add_done_callback(lambda done: self._attempt_ended(address, done))
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if not is_cancelled_alone(attempt):
                raise
            self.check_usable()
            raise self.unreachable(address, "is no longer the master") from None
        except ClientError as error:
            raise copy_error(error) from error.__cause__

    async def request(self, address: str, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer, whatever its code.

        The timeout includes the time for connecting.
        """
        size_bytes = len(command.body)
        async with self._slot(address, command.code):
            connection, spent_s = await self._writable(address, command.code, timeout_s, size_bytes)
            return await connection.request(command, timeout_s, spent_s=spent_s)

    def ready(self, address: str) -> BrokerConnection | None:
        """Return the connection to `address` if it can send at once."""
        self.check_usable()
        connection = self._open.get(address)
        if (
            connection is not None
            and connection.is_open
            and connection.outgoing.is_writable
            and self.at_once_max is None
        ):
            return connection
        return None

    def may_reuse(self, connection: BrokerConnection) -> bool:
        """Whether a connection that was `ready` still is."""
        return (
            self._open.get(connection.address) is connection
            and connection.is_open
            and connection.outgoing.is_writable
        )

    async def request_json(
        self, address: str, code: int, header_start: bytes, body: bytes, timeout_s: float
    ) -> Command:
        """Send a request whose header was begun by begin_json_header; otherwise like `request`."""
        size_bytes = len(header_start) + len(body)
        async with self._slot(address, code):
            connection, spent_s = await self._writable(address, code, timeout_s, size_bytes)
            return await connection.request_json(
                code, header_start, body, timeout_s, spent_s=spent_s
            )

    def _slot(self, address: str, code: int) -> contextlib.AbstractAsyncContextManager[None]:
        if self.at_once_max is None and code in _UNBOUNDED:
            return _NO_SLOT
        slot = self._slots.get(address)
        if slot is None:
            count = self.at_once_max or QUESTIONS_AT_ONCE_MAX
            slot = self._slots[address] = asyncio.Semaphore(count)
        return slot

    async def send_oneway(self, address: str, command: Command) -> None:
        """Send a request without an answer; waits only while the peer reads too slowly."""
        connection = self.existing(address) or await self.connect(address)
        if not connection.outgoing.is_writable:
            await connection.outgoing.wait_writable(len(command.body))
        connection.send_oneway(command)

    async def _writable(
        self, address: str, code: int, timeout_s: float, size_bytes: int
    ) -> tuple[BrokerConnection, float]:
        """Return a connection that can send now, and the seconds spent waiting for it."""
        connection = self.existing(address)
        if connection is not None and connection.outgoing.is_writable:
            return connection, 0.0
        now_s = asyncio.get_running_loop().time
        started_s = now_s()
        try:
            async with asyncio.timeout(timeout_s):
                connection = connection or await self.connect(address)
                await connection.outgoing.wait_writable(size_bytes)
        except TimeoutError:
            raise RequestTimeoutError(code, address, timeout_s) from None
        return connection, now_s() - started_s

    async def follow_name(self, address: str) -> None:
        """Reconnect if the host name in `address` now resolves to another address."""
        connection = self.existing(address)
        peer = None if connection is None else connection.peer_host
        host, port = split_address(address)
        if peer is None or not await leads_elsewhere(host, port, peer):
            return
        if self._open.get(address) is connection:
            log.warning("the host name in %s resolves to another address: reconnecting", address)
            self.retire(address)

    def retire(self, address: str) -> None:
        """Use a new connection for `address`; the old one closes after its last answer."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.retire()

    def abandon(self, address: str) -> None:
        """Abandon all requests to `address`, because another broker has replaced it.

        Requests and connection attempts fail with BrokerUnreachableError.
        """
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.abort()
        attempt = self._attempts.get(address)
        if attempt is not None:
            attempt.cancel()

    @property
    def silent(self) -> list[str]:
        """The addresses that have not answered a request or a connection attempt for a second."""
        before_s = self.loop.time() - SILENCE_NOTED_S
        dialed = [address for address, since_s in self._dialed_s.items() if since_s <= before_s]
        return dialed + [each.address for each in self.connections if each.is_silent]

    async def close(self) -> None:
        """Close every connection after sending buffered data; after 2 s, drop the rest.

        If it is cancelled, buffered data is dropped, but all connections are still closed.
        """
        self._is_closed = True
        if self.is_inherited:
            return
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel()
        self._open.clear()
        connections = list(self._alive)
        for connection in connections:
            connection.close()
        endings: list[asyncio.Future[Any]] = [*attempts, *(each.closed for each in connections)]
        if not endings:
            return
        try:
            await asyncio.wait(endings, timeout=_CLOSE_TIMEOUT_S)
        finally:
            for connection in connections:
                connection.abort()
            await asyncio.wait(endings)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the pool."""
        return self._loop or asyncio.get_running_loop()

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that created the pool."""
        return self._forks != FORKS.count

    def check_usable(self) -> None:
        """Raise ClientStateError if closed, in a forked process or in another event loop."""
        if (
            self._forks == FORKS.count
            and not self._is_closed
            and self._loop is not None
            and self._thread == get_ident()
            and self._loop.is_running()
        ):
            return  # as `check_loop`: this is called for each message
        if self._forks != FORKS.count:
            raise ClientStateError(
                "this client was opened before the process forked, and its connections belong to "
                "the parent; create a new client in the child process"
            )
        if self._is_closed:
            raise ClientStateError("this client is closed; open a new one")
        self.check_loop()

    def check_loop(self) -> None:
        """Raise ClientStateError in an event loop other than that of the first call."""
        # A thread runs only one loop at a time, and get_running_loop makes a system call.
        if self._loop is not None and self._thread == get_ident() and self._loop.is_running():
            return
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self._thread = get_ident()
        elif self._loop is not loop:
            raise ClientStateError(
                "this client belongs to another event loop; open it in the loop that uses it"
            )

    async def _dial(self, address: str) -> BrokerConnection:
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise BrokerUnreachableError(str(error), address=address) from None
        loop = asyncio.get_running_loop()
        credentials = self._read_credentials(address)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connected = await connect(host, port, self._connect_timeout_s)
                _, connection = await loop.create_connection(
                    lambda: BrokerConnection(address, self._handle_request, credentials),
                    sock=connected,
                    ssl=None if self._tls is None else self._tls.context(),
                    server_hostname=None if self._tls is None else host.partition("%")[0],
                )
        except TimeoutError as error:
            reason = error.strerror or f"no connection within {self._connect_timeout_s:g} s"
            raise self.unreachable(address, f"cannot be reached: {reason}") from None
        except OSError as error:
            found = find_remedy(error, is_tls=self._tls is not None)
            if found is not None:
                raise BrokerUnreachableError(
                    f"{address} {found[0]}", address=address, remedy=found[1]
                ) from error
            raise self.unreachable(address, _describe(error, host)) from None
        self._open[address] = connection
        self._alive.add(connection)
        connection.closed.add_done_callback(lambda _: self._connection_ended(connection))
        log.debug("connected to %s", address)
        if self._on_connect is not None:
            self._on_connect(connection)
        return connection

    def _read_credentials(self, address: str) -> Credentials | None:
        try:
            credentials = self._credentials()
        except ClientStateError as error:
            # The file may just be being replaced: a retry will read the new one.
            raise BrokerUnreachableError(
                f"{address} was not connected to, because {error}", address=address
            ) from error
        self._asked_as = ""
        if credentials is not None:
            user, origin = credentials.access_key, self._credentials.origin
            self._asked_as = f"{user!r} with the secret of {origin}"
        return credentials

    @property
    def credentials_may_change(self) -> bool:
        """Whether the credentials come from a file, which is read again after a refusal."""
        return isinstance(self._credentials, CredentialsFile)

    def refusal(self, address: str, code: int, answer: Command) -> RequestRefusedError:
        """Return the error for an answer that is not a success; it names the user of the request.

        If the broker could not authenticate the user and the credentials have changed since, the
        next request uses a new connection with the new ones, and `was_outdated` is set.
        """
        asked_as = self._asked_as
        refused = RequestRefusedError(code, answer.code, answer.remark, address, asked_as=asked_as)
        if refused.is_unproven or answer.code == ResponseCode.NO_PERMISSION:
            refused.was_outdated = self._retire_outdated(address)
        return refused

    def _retire_outdated(self, address: str) -> bool:
        try:
            now = self._credentials()
        except ClientStateError:
            return False  # the file may just be being replaced
        old = [each for each in self._alive if each.address == address and each.credentials != now]
        if self._open.get(address) in old:
            self.retire(address)
        return bool(old)

    def _connection_ended(self, connection: BrokerConnection) -> None:
        self._alive.discard(connection)
        if self._open.get(connection.address) is connection and not self._is_closed:
            self._on_unreachable(connection.address)

    def unreachable(self, address: str, reason: str) -> ClientError:
        remedy = self.remedies.get(address) or "check that the broker runs and listens there"
        return BrokerUnreachableError(f"{address} {reason}", address=address, remedy=remedy)

    def _attempt_ended(self, address: str, attempt: asyncio.Task[BrokerConnection]) -> None:
        if self._attempts.get(address) is attempt:
            del self._attempts[address]
            del self._dialed_s[address]
        # Retrieve the exception: all waiters may have been cancelled.
        if not attempt.cancelled() and attempt.exception() is not None:
            self._on_unreachable(address)


def _describe(error: OSError, host: str) -> str:
    if isinstance(error, socket.gaierror):
        return f"cannot be reached: the host name {host!r} cannot be resolved"
    text = str(error)
    refused = isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in text
    if refused:
        return "refused the connection: no process listens there"
    return f"cannot be reached ({error.strerror or text})"
