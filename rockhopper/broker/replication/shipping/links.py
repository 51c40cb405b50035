"""Opens, accepts and greets the connections between replicas.

A link is usable only after both sides have proved the secret, if there is one. A peer with another
cluster, broker name or log file size receives the reason and is disconnected.
"""

import asyncio
import hmac
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import structlog

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.messages import Hello, Refused
from rockhopper.broker.replication.election.wire import WireError
from rockhopper.broker.replication.shipping.link import GreetingConnections, Link, LinkAcceptor
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.outgoing import PLAIN, Outgoing
from rockhopper.broker.server.listening.renewed_files import current
from rockhopper.protocol.addresses import split_address
from rockhopper.sockets import connect

log = structlog.get_logger("broker.ha")

GREETING_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 2.0
_TEXT = frozenset(b"\r\n\t" + bytes(range(0x20, 0x7F)))


@dataclass(frozen=True, slots=True)
class SetFacts:
    """The facts that all replicas of a set must share."""

    cluster: str
    broker: str
    log_file_size_bytes: int
    secret: bytes | Callable[[], bytes] = b""
    """The content of the secret file, read for each connection. Empty: no proof is required.

    If it has several lines, this replica proves the first one, and accepts each of them from
    others.
    """

    @property
    def secrets(self) -> list[bytes]:
        """The secrets: the lines of a text file, or the whole content of another file."""
        content = current(self.secret)
        is_text = all(byte in _TEXT for byte in content)
        lines = content.split(b"\n") if is_text else [content]
        return [line.strip() for line in lines if line.strip()]


class Links:
    """Opens and accepts the connections of one replica."""

    def __init__(self, facts: SetFacts, gate: Gate = OPEN, outgoing: Outgoing = PLAIN) -> None:
        self._facts = facts
        self._gate = gate
        self._outgoing = outgoing
        self._numbers = count(1)

    async def listen(self, host: str, port: int, acceptor: LinkAcceptor) -> Listener:
        """Listen on a port; *acceptor* gets each connection and must call ``receive_greeting``.

        Raises:
            OSError: the port cannot be opened.
        """
        greeting = GreetingConnections()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = Listener(
            socket.create_server((host, port), family=family),
            lambda _caller: Link(next(self._numbers), acceptor, greeting),
            name="replicas",
            gate=self._gate,
        )
        await listener.start()
        return listener

    async def greet(self, address: str, hello: Callable[[], Hello]) -> Link:
        """Connect to a master and greet it.

        Raises:
            ConnectionRefusedError: the machine runs, but no process listens.
            OSError, TimeoutError: it cannot be reached.
            WireError: it is not a replica of this set, or does not know the secret.
        """
        host, port = split_address(address)
        if port is None:
            raise ConnectionError(f"{address!r} has no port")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            options = self._outgoing.options(host)
            _, link = await loop.create_connection(
                lambda: Link(next(self._numbers)),
                sock=await connect(host, port, CONNECT_TIMEOUT_S),
                **options,
            )
        facts = self._facts
        greeting = wire.greeting(
            hello(),
            cluster=facts.cluster,
            broker=facts.broker,
            log_file_size_bytes=facts.log_file_size_bytes,
            nonce=secrets.token_bytes(wire.NONCE_SIZE_BYTES),
        )
        link.send(greeting)
        if known := facts.secrets:
            try:
                async with asyncio.timeout(GREETING_TIMEOUT_S):
                    await self._answer_challenge(link, greeting, known)
            except BaseException:
                link.close()
                raise
        return link

    async def _answer_challenge(self, link: Link, greeting: bytes, known: list[bytes]) -> None:
        frame = await link.next_frame()
        if isinstance(frame, Refused):
            raise WireError(f"refused: {frame.why}")
        if not isinstance(frame, wire.Challenge):
            raise WireError(
                "it does not ask for proof of the secret (haSecretFile) that this replica has"
            )
        secret = _proven(known, b"master", greeting, frame.nonce, frame.proof)
        if secret is None:
            raise WireError("it has a different secret (haSecretFile)")
        link.send(wire.proof(secret, greeting, frame.nonce))

    async def receive_greeting(self, link: Link) -> Hello:
        """Receive and check the greeting on an accepted connection.

        Raises:
            WireError: the peer is not a replica of this set; it received the reason and was
            disconnected.
            TimeoutError: it did not greet in time and was disconnected.
        """
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                frame = await link.next_frame()
                if not isinstance(frame, wire.Greeting):
                    raise WireError("it did not greet")
                self._check(frame)
                if known := self._facts.secrets:
                    await self._challenge(link, frame, known)
        except WireError as error:
            link.send(wire.encode(Refused(0, str(error))))
            link.close()
            raise
        except BaseException:
            link.close()
            raise
        return frame.hello

    async def _challenge(self, link: Link, greeting: wire.Greeting, known: list[bytes]) -> None:
        nonce = secrets.token_bytes(wire.NONCE_SIZE_BYTES)
        link.send(wire.challenge(known[0], greeting.signed, nonce))
        frame = await link.next_frame()
        proof = frame.proof if isinstance(frame, wire.Proof) else b""
        if _proven(known, b"follower", greeting.signed, nonce, proof) is None:
            raise WireError("it does not know the secret of this set (haSecretFile)")

    def _check(self, greeting: wire.Greeting) -> None:
        facts = self._facts
        for name, theirs, ours in (
            ("brokerClusterName", greeting.cluster, facts.cluster),
            ("brokerName", greeting.broker, facts.broker),
            ("mappedFileSizeCommitLog", greeting.log_file_size_bytes, facts.log_file_size_bytes),
        ):
            if theirs != ours:
                raise WireError(
                    f"{name} is {theirs!r} there and {ours!r} here: it must be the same in a set"
                )


def _proven(
    known: list[bytes], side: bytes, greeting: bytes, nonce: bytes, proof: bytes
) -> bytes | None:
    """Return the secret that *proof* proves, if it is a known one."""
    proofs = ((secret, wire.prove(secret, side, greeting, nonce)) for secret in known)
    return next((each for each, right in proofs if hmac.compare_digest(proof, right)), None)
