"""Who is let in on the HA port, and what the others are told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.messages import Ack, Hello, Refused
from rockhopper.broker.replication.election.replica_set import Replica
from rockhopper.broker.replication.election.wire import WireError
from rockhopper.broker.replication.shipping.link import Link
from rockhopper.broker.replication.shipping.links import Links, SetFacts
from rockhopper.broker.server.listening.gates import gate_of
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.settings.tls_config import TlsConfig, TlsMode
from tests.support.certificates import Authority
from tests.support.link_frames import Frames

FACTS = SetFacts("DefaultCluster", "broker-a", 1 << 30, b"secret")
HELLO = Hello(Replica(2, "s2"), "i2", 5, True, 70, 90, ())


class Master:
    """A master's side: what came of each connection."""

    def __init__(self, facts: SetFacts, gate: Gate = OPEN) -> None:
        self._links = Links(facts, gate)
        self.address = ""
        self.results: asyncio.Queue[Hello | WireError] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> Listener:
        server = await self._links.listen("127.0.0.1", 0, self)
        self.address = f"127.0.0.1:{server.port}"
        return server

    def connected(self, link: Link) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._accepted(link)))

    async def _accepted(self, link: Link) -> None:
        try:
            hello = await self._links.receive_greeting(link)
        except WireError as error:
            await self.results.put(error)
            return
        link.send(wire.encode(Ack(1, 2, True)))
        link.close()
        await self.results.put(hello)


@asynccontextmanager
async def a_master(facts: SetFacts = FACTS, gate: Gate = OPEN) -> AsyncIterator[Master]:
    master = Master(facts, gate)
    listener = await master.open()
    try:
        yield master
    finally:
        await listener.stop()


async def test_replicas_talk_with_tls_where_it_is_set(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    config = TlsConfig(mode=TlsMode.ENFORCING, certificate=pair.certificate, key=pair.key)
    async with a_master(FACTS, gate_of(config, tmp_path)) as master:
        link = await Links(FACTS, outgoing=Outgoing(config)).greet(master.address, lambda: HELLO)
        assert await master.results.get() == HELLO
        link.close()
        with pytest.raises((OSError, WireError)):
            await Links(FACTS).greet(master.address, lambda: HELLO)


@pytest.mark.parametrize("secret", [b"secret", b""])
async def test_a_replica_of_the_set_is_let_in(secret: bytes) -> None:
    facts = replace(FACTS, secret=secret)
    async with a_master(facts) as master:
        link = await Links(facts).greet(master.address, lambda: HELLO)
        assert await master.results.get() == HELLO
        frames = Frames()
        await link.frames(frames)
        assert frames.found == [Ack(1, 2, True)]
        link.close()
        assert link.is_closing
        await link.drain()


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        (replace(FACTS, cluster="Other"), "brokerClusterName is 'Other' there"),
        (replace(FACTS, broker="broker-b"), "brokerName is 'broker-b' there"),
        (replace(FACTS, log_file_size_bytes=4096), "mappedFileSizeCommitLog is 4096 there"),
    ],
)
async def test_another_set_is_told_what_differs(theirs: SetFacts, why: str) -> None:
    async with a_master() as master:
        with pytest.raises(WireError, match=f"refused: {why}"):
            await Links(theirs).greet(master.address, lambda: HELLO)
        assert why in str(await master.results.get())


async def test_another_secret_is_noticed_on_both_sides() -> None:
    async with a_master() as master:
        with pytest.raises(WireError, match="it has a different secret"):
            await Links(replace(FACTS, secret=b"guess")).greet(master.address, lambda: HELLO)
        assert isinstance(await master.results.get(), WireError)


async def test_a_recorded_conversation_is_worth_nothing() -> None:
    signed = wire.greeting(
        HELLO,
        cluster="DefaultCluster",
        broker="broker-a",
        log_file_size_bytes=1 << 30,
        nonce=bytes(16),
    )
    recorded = wire.proof(b"secret", signed, bytes(16))
    async with a_master() as master:
        answered = await _say(master, signed, lambda: recorded)
        assert "does not know the secret" in str(await master.results.get())
    assert isinstance(answered[-1], Refused)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", wire.encode(Ack(1, 2, True)), b"RHHB"])
async def test_a_stranger_is_told_and_closed(said: bytes) -> None:
    async with a_master() as master:
        answered = await _say(master, said, lambda: b"")
        assert isinstance(await master.results.get(), WireError)
    assert isinstance(answered[-1], Refused)


async def test_nobody_there_is_told_apart_from_a_refusal() -> None:
    async with a_master() as master:
        address = master.address
    with pytest.raises(ConnectionRefusedError):
        await Links(FACTS).greet(address, lambda: HELLO)


async def _say(master: Master, said: bytes, then: Callable[[], bytes]) -> list[wire.Frame]:
    """Say something, something more after the first answer, and return all answers."""
    host, _, port = master.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    decoder, answered = wire.WireDecoder(), list[wire.Frame]()
    while data := await reader.read(1 << 16):
        answered += decoder.feed(data)
        writer.write(then())
        then = bytes
    writer.close()
    return answered


async def test_a_secret_is_rotated_replica_by_replica() -> None:
    held = {"one": b"old", "two": b"old"}
    one = replace(FACTS, secret=lambda: held["one"])
    two = replace(FACTS, secret=lambda: held["two"])
    async with a_master(one) as first, a_master(two) as second:
        for text in (b"old\nnew\n", b"new\r\nold", b"new"):
            for name in held:
                held[name] = text
                for master, other in ((first, two), (second, one)):
                    link = await Links(other).greet(master.address, lambda: HELLO)
                    assert await master.results.get() == HELLO
                    link.close()
        with pytest.raises(WireError, match="it has a different secret"):
            await Links(replace(FACTS, secret=b"old")).greet(first.address, lambda: HELLO)


def test_a_secret_that_is_no_text_is_one_whatever_is_in_it() -> None:
    assert replace(FACTS, secret=b"\x00\xff\nx").secrets == [b"\x00\xff\nx"]
