"""Sessions: clients by their id, whatever connections they use.

A load balancer in front of this port may let many clients share a connection, or let one client use
several. So each call contains the client's id, and the broker's commands go to the newest of its
Telemetry streams. A session ends when the client ends it, or after 120 s without a heartbeat. The
broker's members, locks and transactions use the session as their peer.
"""

from collections.abc import Callable, Iterator
from typing import Any

import structlog

from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.commands import Commands, recovery_of
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.broker.kernel.members.consumer_groups import HEARTBEAT_TIMEOUT_MS, Client
from rockhopper.broker.users.peer import Notice, Peer, Principal, TransactionCheck
from rockhopper.protocol.codes import MQ_VERSION, LanguageCode
from rockhopper.protocol.grpc_v2.codes import Code

log = structlog.get_logger("broker.grpc")

SESSIONS_MAX = 100_000

_LANGUAGES = {
    "JAVA": LanguageCode.JAVA,
    "CPP": LanguageCode.CPP,
    "DOTNET": LanguageCode.DOTNET,
    "DOT_NET": LanguageCode.DOTNET,
    "PYTHON": LanguageCode.PYTHON,
    "GO": LanguageCode.GO,
    "GOLANG": LanguageCode.GO,
    "RUST": LanguageCode.RUST,
    "HTTP": LanguageCode.HTTP,
}


class ClientSession:
    """One client as the broker's peer."""

    def __init__(self, call: Call) -> None:
        self.client_id = call.client_id
        self.language = call.fields.get("x-mq-language", "").upper()
        self.principal: Principal = call.principal
        self.closed = False
        self.writing_paused = True
        """The broker cannot send to a client without a Telemetry stream that the client reads."""
        self.attributes: dict[str, object] = {}
        self.on_close: list[Callable[[Peer], None]] = []
        self.addresses = call.connection.addresses
        self.settings: Any = None
        """The last settings that the client sent."""
        self.commands = Commands(self.tell)
        self.last_seen_ms = 0
        self._telemetry: Call | None = None
        self._connection = call.connection

    @property
    def peer(self) -> str:
        """The client's address as text."""
        return self._connection.peer

    def client(self) -> Client:
        """Return the client for registration."""
        language = _LANGUAGES.get(self.language, LanguageCode.OTHER)
        return Client(self, self.client_id, language.value, MQ_VERSION, self.principal.user)

    def talk_by(self, telemetry: Call) -> None:
        """Use this Telemetry stream for commands to the client from now on."""
        self._telemetry = telemetry
        self._connection = telemetry.connection
        self.addresses = telemetry.connection.addresses
        self.writing_paused = False
        telemetry.waiting().on_close.append(lambda _peer: self._silent(telemetry))

    def _silent(self, telemetry: Call) -> None:
        if self._telemetry is telemetry:
            self._telemetry = None
            self.writing_paused = True

    def tell(self, command: Any) -> int:
        """Send a command over the Telemetry stream.

        Return its size in bytes, 0 without a stream.
        """
        if self._telemetry is None or self._telemetry.is_over:
            return 0
        self._telemetry.write(command)
        return int(command.ByteSize())

    def notify(self, notice: Notice) -> int:
        """Send a transaction check.

        Ignore changes of the group's members, which gRPC clients do not need.
        """
        if isinstance(notice, TransactionCheck):
            return self.tell(recovery_of(notice))
        return 0

    async def running_info(self, *, with_stacks: bool) -> bytes:
        """See Questioned."""
        return await self.commands.running_info(self.settings, with_stacks=with_stacks)

    async def consume_directly(self, record: bytes) -> bytes:
        """See Questioned."""
        return await self.commands.consume_directly(record)

    def close(self) -> None:
        """Mark the session as closed, and call the listeners."""
        if self.closed:
            return
        self.closed = True
        self.commands.close()
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()
        if self._telemetry is not None:
            self._telemetry.end_call()
            self._telemetry = None


class Sessions:
    """All clients of one broker's gRPC port."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._sessions: dict[str, ClientSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ClientSession]:
        return iter(list(self._sessions.values()))

    def find(self, call: Call) -> ClientSession | None:
        """Return the session of a call's client; None before its settings.

        Raises:
            GrpcStatusError: the client has no id, or that of another user's client.
        """
        session = self._sessions.get(call.client_id)
        if session is not None and session.principal.user != call.principal.user:
            raise GrpcStatusError(
                Code.UNAUTHORIZED,
                f"the client id {call.client_id} belongs to a client of another user",
            )
        return session

    def get_known(self, call: Call) -> ClientSession:
        """Return the session, or refuse with a request for settings. Raises GrpcStatusError."""
        session = self.find(call)
        if session is None or session.settings is None:
            raise GrpcStatusError(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                "the client has sent no settings through Telemetry: send them first, then retry",
            )
        session.last_seen_ms = self._now_ms()
        return session

    def open(self, call: Call) -> ClientSession:
        """Return or create the session of a call's client. Raises GrpcStatusError."""
        session = self.find(call)
        if session is None:
            if len(self._sessions) >= SESSIONS_MAX:
                raise GrpcStatusError(
                    Code.TOO_MANY_REQUESTS, f"{SESSIONS_MAX} clients are connected already"
                )
            session = self._sessions[call.client_id] = ClientSession(call)
        session.last_seen_ms = self._now_ms()
        return session

    def end_session(self, session: ClientSession) -> None:
        """End the session of a client that leaves."""
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]
        session.close()

    def expire(self) -> None:
        """End the sessions of silent clients."""
        now_ms = self._now_ms()
        for session in self:
            if now_ms - session.last_seen_ms > HEARTBEAT_TIMEOUT_MS:
                log.info("a client stopped sending heartbeats", client=session.client_id)
                self.end_session(session)

    def end_user(self, user: str) -> None:
        """End the sessions of *user*."""
        for session in self:
            if session.principal.user == user:
                self.end_session(session)

    def close(self) -> None:
        """End all sessions."""
        for session in self:
            self.end_session(session)
