"""A connection until its first bytes have said what it speaks."""

import asyncio
import socket

import pytest

from rockhopper.broker.server.listening import arrivals
from rockhopper.broker.server.listening.arrivals import Arrival
from tests.support.hang import HANG_S

HELLO = b"\x16\x03\x01\x00\x04abcd"


class Rig:
    """An arrival, its peer, and what became of it."""

    def __init__(self, *, may_be_announced: bool = False) -> None:
        self.peer, ours = socket.socketpair()
        ours.setblocking(False)
        self.outcome: asyncio.Future[bool | str] = asyncio.get_running_loop().create_future()
        self.arrival = Arrival(
            ours,
            "peer",
            self,
            may_be_announced=may_be_announced,
        )

    def peer_known(self, arrival: Arrival, *, speaks_tls: bool) -> None:
        self.outcome.set_result(speaks_tls)

    def peer_gone(self, arrival: Arrival, reason: str) -> None:
        self.outcome.set_result(reason)

    async def ends(self) -> bool | str:
        """Whether it speaks TLS, or why it was closed."""
        async with asyncio.timeout(HANG_S):
            outcome = await self.outcome
        self.peer.close()
        return outcome

    def left(self) -> bytes:
        """What its protocol will read."""
        with self.arrival.connected as connected:
            return connected.recv(4096)


@pytest.mark.parametrize(("data", "speaks_tls"), [(b"\x00\x00\x00\x01", False), (HELLO, True)])
async def test_what_has_come_tells_and_is_left(data: bytes, speaks_tls: bool) -> None:
    rig = Rig()
    rig.peer.send(data)
    rig.arrival.look()
    assert await rig.ends() is speaks_tls
    assert rig.left() == data


async def test_a_hello_may_come_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "LOOK_AGAIN_S", 0.0)
    rig = Rig()
    rig.arrival.look()
    for byte in HELLO:
        assert not rig.outcome.done()
        rig.peer.send(bytes([byte]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert await rig.ends() is True
    assert rig.left() == HELLO


async def test_who_goes_or_breaks_off_is_closed() -> None:
    rig = Rig()
    rig.arrival.look()
    rig.peer.close()
    assert await rig.ends() == ""
    assert rig.arrival.connected.fileno() == -1


@pytest.mark.parametrize("said", [b"", HELLO[:7]])
async def test_silence_ends(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(arrivals, "SILENCE_TIMEOUT_S", 0.0)
    rig = Rig()
    if said:
        rig.peer.send(said)
    rig.arrival.look()
    assert "sent nothing" in str(await rig.ends())


async def test_what_a_trusted_proxy_announces_is_taken_off() -> None:
    rig = Rig(may_be_announced=True)
    rig.arrival.look()
    rig.peer.send(b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n" + HELLO)
    assert await rig.ends() is True
    assert rig.arrival.address == ("192.0.2.1", 56324)
    assert rig.left() == HELLO


async def test_a_false_announcement_ends() -> None:
    rig = Rig(may_be_announced=True)
    rig.peer.send(b"PROXY TCP4 nobody\r\n")
    rig.arrival.look()
    assert "PROXY" in str(await rig.ends())


async def test_who_may_not_announce_is_taken_at_its_word() -> None:
    rig = Rig()
    rig.peer.send(b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n")
    rig.arrival.look()
    assert await rig.ends() is False
    assert rig.left().startswith(b"PROXY")
    assert rig.arrival.address is None
