"""A connection from this broker to a remote name server: requests out, answers in.

It opens with the first request that needs it, and again after it broke. The owner is notified at
once when the other side closes, because the name server has then forgotten this broker. If the
server's host name resolves to another address, the link moves there although the old address still
answers; the owner is then notified as if the link had closed.
"""

import asyncio
from typing import Protocol, cast

import structlog

from rockhopper.broker.server.listening.outgoing import PLAIN, Outgoing
from rockhopper.broker.server.listening.socket_names import socket_address
from rockhopper.broker.server.remoting.pending_calls import PendingCalls
from rockhopper.protocol.addresses import is_loopback, split_address
from rockhopper.protocol.codes import (
    FLAG_ONEWAY,
    MQ_VERSION,
    LanguageCode,
    RequestCode,
    ResponseCode,
)
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.names import AUTO_CREATE_TOPIC, PROBE_FIELD
from rockhopper.protocol.signing import Credentials, sign_fields
from rockhopper.sockets import connect, leads_elsewhere

LOOK_INTERVAL_S = 0.01
_PROBE = {"topic": AUTO_CREATE_TOPIC, "queueId": "0", PROBE_FIELD: "true"}

CONNECT_TIMEOUT_S = 5.0
NAME_CHECK_INTERVAL_S = 10.0

log = structlog.get_logger("broker.link")


class RefusedError(Exception):
    """A name server answered with a code other than success."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(f"refused with code {code}: {remark or 'no reason given'}")
        self.code = code


class LinkOwner(Protocol):
    """Is notified of what comes from the other side of a link."""

    def link_lost(self) -> None:
        """Note that the other side closed the connection."""

    def request_received(self, command: Command) -> None:
        """Handle a request of the name server."""


class NameServiceLink:
    """A connection to one name server. Methods belong to the event loop's thread."""

    def __init__(
        self,
        address: str,
        owner: LinkOwner | None = None,
        *,
        credentials: Credentials | None = None,
        outgoing: Outgoing = PLAIN,
    ) -> None:
        self._outgoing = outgoing
        host, port = split_address(address)
        self.address = address
        self._host = host
        self._port = port or 0
        self._owner = owner
        self._credentials = credentials
        self._protocol: _LinkProtocol | None = None
        self._connecting = asyncio.Lock()
        self._name_checked_s = 0.0

    @property
    def keeps_secrets(self) -> bool:
        """Whether the traffic is private: over TLS, or only within this host."""
        protocol = self._protocol
        return protocol is not None and (protocol.is_tls or is_loopback(protocol.hosts[0]))

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._protocol is not None and not self._protocol.is_lost

    async def connect(self) -> tuple[str, str]:
        """Connect if necessary; return the hosts of both ends, the peer's first. Raises OSError."""
        async with self._connecting:
            if self.is_connected:
                await self._follow_name()
            if self._protocol is None or self._protocol.is_lost:
                loop = asyncio.get_running_loop()
                self._name_checked_s = loop.time()
                options = self._outgoing.options(self._host)
                _, self._protocol = await loop.create_connection(
                    lambda: _LinkProtocol(self._owner),
                    sock=await connect(self._host, self._port, CONNECT_TIMEOUT_S),
                    **options,
                )
        return self._protocol.hosts

    async def _follow_name(self) -> None:
        protocol, now_s = self._protocol, asyncio.get_running_loop().time()
        if protocol is None or now_s - self._name_checked_s < NAME_CHECK_INTERVAL_S:
            return
        self._name_checked_s = now_s
        if await leads_elsewhere(self._host, self._port, protocol.hosts[0]):
            log.warning(
                "the host name resolves to another address: reconnecting", address=self.address
            )
            self._protocol = None
            protocol.close()
            if self._owner is not None:
                self._owner.link_lost()

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        """Send a request and return its answer, whatever its code.

        Raises:
            OSError: the connection cannot be opened, or it broke.
        """
        await self.connect()
        assert self._protocol is not None
        return await self._protocol.call(code, self._sign(ext, body), body)

    async def call(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        """Send a request and return its answer.

        Raises:
            RefusedError: the answer's code is not success.
            OSError: the connection cannot be opened, or it broke.
        """
        answer = await self.ask(code, ext, body)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(answer.code, answer.remark)
        return answer

    def tell(self, code: int, ext: dict[str, str]) -> None:
        """Send a one-way request; does nothing without a connection."""
        if self._protocol is not None and not self._protocol.is_lost:
            self._protocol.tell(code, self._sign(ext, b""))

    def _sign(self, ext: dict[str, str], body: bytes) -> dict[str, str]:
        if self._credentials is None:
            return ext
        return sign_fields(self._credentials, ext, body, MQ_VERSION)

    def close(self) -> None:
        """Close the connection without notifying the owner."""
        if self._protocol is not None:
            self._protocol.close()


class _LinkProtocol(asyncio.Protocol):
    def __init__(self, owner: LinkOwner | None) -> None:
        self._owner = owner
        self._decoder = FrameDecoder()
        self._calls = PendingCalls()
        self._transport: asyncio.Transport | None = None
        self._is_closed_by_us = False
        self.is_lost = False
        self.hosts = ("", "")
        self.is_tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio.Transport but are not subclasses.
        self._transport = cast("asyncio.Transport", transport)
        peer, _ = socket_address(transport.get_extra_info("peername"))
        local, _ = socket_address(transport.get_extra_info("sockname"))
        self.hosts = (peer, local)
        self.is_tls = transport.get_extra_info("ssl_object") is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._calls.fail("it closed the connection")
        if not self._is_closed_by_us and self._owner is not None:
            self._owner.link_lost()

    def data_received(self, data: bytes) -> None:
        try:
            for serialize_type, header, body in self._decoder.feed(data):
                command = decode_header(serialize_type, header, body)
                if command.is_response:
                    self._calls.resolve(command)
                elif self._owner is not None:
                    self._owner.request_received(command)
            if self._decoder.error is not None:
                raise self._decoder.error
        except ProtocolError:
            # The peer is not a name server; callers see a broken connection.
            assert self._transport is not None
            self._transport.abort()

    def tell(self, code: int, ext: dict[str, str]) -> None:
        if self._transport is not None:
            command = _command(code, self._calls.next_opaque(), ext, flag=FLAG_ONEWAY)
            self._transport.write(encode_command(command))

    async def call(self, code: int, ext: dict[str, str], body: bytes) -> Command:
        if self.is_lost or self._transport is None:
            raise ConnectionResetError("it closed the connection")
        opaque = self._calls.next_opaque()
        response = self._calls.expect(opaque)
        self._transport.write(encode_command(_command(code, opaque, ext, body)))
        try:
            return await response
        finally:
            self._calls.forget(opaque)

    def close(self) -> None:
        self._is_closed_by_us = True
        if self._transport is not None and not self.is_lost:
            self._transport.close()


async def serves(
    address: str, outgoing: Outgoing = PLAIN, credentials: Credentials | None = None
) -> None:
    """Return once the broker at *address* serves clients, as the master of its set."""
    link = NameServiceLink(address, outgoing=outgoing, credentials=credentials)
    try:
        while True:
            try:
                answer = await link.ask(RequestCode.GET_MAX_OFFSET, _PROBE)
                if answer.code != ResponseCode.SYSTEM_BUSY:
                    return
            except OSError:
                pass  # The broker does not accept clients yet.
            await asyncio.sleep(LOOK_INTERVAL_S)
    finally:
        link.close()


def _command(
    code: int, opaque: int, ext: dict[str, str], body: bytes = b"", *, flag: int = 0
) -> Command:
    """Build a request that names its language, because the version alone could be RocketMQ's."""
    return Command(
        code=code, opaque=opaque, flag=flag, ext=ext, body=body, language=LanguageCode.PYTHON.value
    )
