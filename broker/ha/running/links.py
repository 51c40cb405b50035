"""Connections between replicas: greeted, proven, read into frames, written without waiting.

A link is handed on only when both sides have proven the secret, if there is one. Whoever greets
with another cluster, another broker or another size of log files is told so, and closed.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import structlog

from rockhopper.broker.ha import wire
from rockhopper.broker.ha.messages import Hello, Refused
from rockhopper.broker.ha.wire import WireError

log = structlog.get_logger("broker.ha")

READ_SIZE_BYTES = 256 << 10
GREETING_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class SetFacts:
    """What all replicas of a set must have in common."""

    cluster: str
    broker: str
    log_file_size_bytes: int
    secret: bytes = b""
    """Empty: nobody has to prove anything."""


class Link:
    """One connection that has been greeted."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer
        self.peer = str(writer.get_extra_info("peername"))

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._writer.is_closing()

    def send(self, *parts: bytes) -> None:
        """Send behind what was sent before; nothing after ``close``."""
        if not self._writer.is_closing():
            self._writer.writelines(parts)

    async def drain(self) -> None:
        """Wait until most of what was sent is on its way."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def close(self) -> None:
        """Close; what was sent still leaves."""
        self._writer.close()

    async def frames(self, decoder: wire.Decoder, each: Callable[[wire.Frame], None]) -> None:
        """Call *each* with every frame until the connection ends.

        Raises:
            WireError: what came is no frame.
        """
        while data := await self._reader.read(READ_SIZE_BYTES):
            for frame in decoder.feed(data):
                each(frame)

    async def next_frame(self, decoder: wire.Decoder) -> wire.Frame:
        """The one frame that the peer sends before it waits for an answer.

        Raises:
            WireError: it is not one, or the connection ended.
        """
        while data := await self._reader.read(READ_SIZE_BYTES):
            frames = list(decoder.feed(data))
            if len(frames) > 1:
                raise WireError("more than one frame at once while greeting")
            if frames:
                return frames[0]
        raise WireError("the connection ended while greeting")


class Links:
    """Makes and takes the connections of one replica."""

    def __init__(self, facts: SetFacts) -> None:
        self._facts = facts
        self._numbers = count(1)

    def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Link:
        return Link(next(self._numbers), reader, writer)

    async def greet(self, address: str, hello: Callable[[], Hello]) -> tuple[Link, wire.Decoder]:
        """Connect to a master and greet it; return the link and what decodes its frames.

        Raises:
            ConnectionRefusedError: its machine is there, and nobody listens.
            OSError, TimeoutError: it cannot be reached.
            WireError: it is no replica of this set, or does not know the secret.
        """
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
        link, decoder = self._link(reader, writer), wire.Decoder()
        facts = self._facts
        greeting = wire.greeting(
            hello(),
            cluster=facts.cluster,
            broker=facts.broker,
            log_file_size_bytes=facts.log_file_size_bytes,
            nonce=secrets.token_bytes(wire.NONCE_SIZE_BYTES),
        )
        link.send(greeting)
        if facts.secret:
            try:
                async with asyncio.timeout(GREETING_TIMEOUT_S):
                    await self._answer_challenge(link, decoder, greeting)
            except BaseException:
                link.close()
                raise
        return link, decoder

    async def _answer_challenge(self, link: Link, decoder: wire.Decoder, greeting: bytes) -> None:
        frame = await link.next_frame(decoder)
        if isinstance(frame, Refused):
            raise WireError(f"refused: {frame.why}")
        if not isinstance(frame, wire.Challenge):
            raise WireError("it asks for no proof of the secret (haSecretFile) that this one has")
        secret = self._facts.secret
        expected = wire.prove(secret, b"master", greeting, frame.nonce)
        if not hmac.compare_digest(frame.proof, expected):
            raise WireError("it has another secret (haSecretFile)")
        link.send(wire.proof(secret, greeting, frame.nonce))

    async def greeted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Link, wire.Decoder, Hello]:
        """Take a connection and the greeting on it.

        Raises:
            WireError: it is no replica of this set; it was told so, and is closed.
            OSError, TimeoutError: it went away, or did not greet in time.
        """
        link, decoder = self._link(reader, writer), wire.Decoder()
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                frame = await link.next_frame(decoder)
                if not isinstance(frame, wire.Greeting):
                    raise WireError("it did not greet")
                self._check(frame)
                if self._facts.secret:
                    await self._challenge(link, decoder, frame)
        except WireError as error:
            link.send(wire.encode(Refused(0, str(error))))
            link.close()
            raise
        except BaseException:
            link.close()
            raise
        return link, decoder, frame.hello

    async def _challenge(self, link: Link, decoder: wire.Decoder, greeting: wire.Greeting) -> None:
        secret, nonce = self._facts.secret, secrets.token_bytes(wire.NONCE_SIZE_BYTES)
        link.send(wire.challenge(secret, greeting.signed, nonce))
        frame = await link.next_frame(decoder)
        expected = wire.prove(secret, b"follower", greeting.signed, nonce)
        proof = frame.proof if isinstance(frame, wire.Proof) else b""
        if not hmac.compare_digest(proof, expected):
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
