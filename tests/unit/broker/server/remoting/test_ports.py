"""Ports: bound before anything else, listening only when somebody takes them, and let go."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.remoting.ports import Ports
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.settings.tls_config import TlsConfig, TlsMode


@pytest.fixture
def ports() -> Iterator[Ports]:
    made = Ports("127.0.0.1")
    yield made
    made.close()


def connects(number: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", number)) == 0


async def test_a_bound_port_refuses_until_somebody_listens(ports: Ports) -> None:
    ports.bind("listenPort", 0)
    number = ports.number("listenPort")
    assert number > 0
    assert not connects(number)

    async def start(bound: socket.socket, _gate: Gate) -> None:
        bound.listen()

    await ports.listen("listenPort", start)
    assert connects(number)
    ports.close()
    assert not connects(number)


async def test_who_connects_has_to_pass_the_gate_but_at_ports_of_the_parent(
    ports: Ports, tmp_path: Path
) -> None:
    ports.open_gate(TlsConfig(mode=TlsMode.PERMISSIVE), StoreLayout(tmp_path), [])
    ports.bind("listenPort", 0)
    ports.adopt("httpPort", socket.create_server(("127.0.0.1", 0)))
    gates: list[Gate] = []

    async def start(_bound: socket.socket, gate: Gate) -> None:
        gates.append(gate)

    await ports.listen("listenPort", start)
    await ports.listen("httpPort", start)
    assert gates == [ports.gate, OPEN]
    ports.close_gate()
    assert ports.gate is OPEN


async def test_a_certificate_that_cannot_be_used_stops_the_start(
    ports: Ports, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(StartError, match="cannot be read"):
        ports.open_gate(TlsConfig(certificate=nowhere, key=nowhere), StoreLayout(tmp_path), [])


async def test_a_port_that_is_not_wanted_is_none(ports: Ports) -> None:
    ports.bind("healthPort", -1)
    assert (ports.number("healthPort"), ports.address("healthPort")) == (0, "")

    async def start(bound: socket.socket, _gate: Gate) -> None:
        raise AssertionError

    await ports.listen("healthPort", start)


def test_a_port_is_bound_once(ports: Ports) -> None:
    ports.bind("listenPort", 0)
    number = ports.number("listenPort")
    ports.bind("listenPort", 0)
    assert ports.number("listenPort") == number
    assert ports.address("listenPort") == f"127.0.0.1:{number}"


def test_all_addresses_are_reached_by_the_loopback() -> None:
    ports = Ports("0.0.0.0")
    ports.bind("listenPort", 0)
    assert ports.address("listenPort") == f"127.0.0.1:{ports.number('listenPort')}"
    ports.close()


def test_a_port_in_use_says_so(ports: Ports) -> None:
    ports.bind("listenPort", 0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(StartError, match="in use"):
            ports.bind("namesrvPort", other.getsockname()[1])
    assert ports.number("namesrvPort") == 0


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_a_host_that_is_not_here_says_so(host: str) -> None:
    with pytest.raises(StartError, match=f"{host} is not an address of this machine"):
        Ports(host).bind("listenPort", 0)


async def test_who_listened_first_is_named(ports: Ports) -> None:
    ports.bind("listenPort", 0)

    async def start(bound: socket.socket, _gate: Gate) -> None:
        raise OSError(errno.EADDRINUSE, "x")

    with pytest.raises(StartError, match="in use"):
        await ports.listen("listenPort", start)


def test_a_port_that_somebody_else_had_meanwhile_is_taken_again_when_it_is_free(
    ports: Ports,
) -> None:
    ports.bind("listenPort", 0)
    number = ports.number("listenPort")
    ports.close()
    with socket.create_server(("127.0.0.1", number)):
        for _ in range(2):
            with pytest.raises(StartError):
                ports.take_again("listenPort")
    ports.take_again("listenPort")
    assert ports.number("listenPort") == number


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.1", None), ("0.0.0.0", "0.0.0.0, every address of this host (")]
)
async def test_a_host_that_stands_for_all_addresses_is_named(host: str, said: str | None) -> None:
    made = Ports(host)
    made.bind("listenPort", 0)
    try:
        told = made.listening()
        if said is None:
            assert told == {}
        else:
            assert told["listens_on"].startswith(said)
            assert told["listens_on"].endswith(f": {made.number('listenPort')}")
    finally:
        made.close()
