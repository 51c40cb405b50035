"""TLS with the real daemon: one port for both ways, certificates that change, floods, proxies."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client import Admin, BrokerUnreachableError, Message, Producer, TlsOptions
from rockhopper.client.pull_consumer import PullConsumer
from rockhopper.protocol.addresses import split_address
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.certificates import Authority
from tests.support.daemon import Daemon
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
from tests.support.raw_peer import RawPeer
from tests.support.turns import until

FREE = ("--listen-port", "0", "--namesrv-port", "0", "--http-port", "0")
FLOOD = 500


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA that the clients of these tests trust."""
    directory = tmp_path / "certificates"
    directory.mkdir()
    return Authority(directory)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


async def send(nameserver: str, tls: TlsOptions | bool, body: bytes = b"hello") -> None:
    async with asyncio.timeout(HANG_S), Producer(nameserver, tls=tls) as producer:
        await producer.send(Message("orders", body))


async def test_with_tls_and_without_the_same_messages_are_read(
    store: Path, authority: Authority
) -> None:
    trusting = TlsOptions(authority.ca)
    async with Daemon(store, *authority.issue().options()) as daemon:
        await send(daemon.nameserver, trusting, b"safe")
        await send(daemon.nameserver, False, b"plain")
        for tls in (trusting, False):
            async with PullConsumer("orders", nameserver=daemon.nameserver, tls=tls) as reader:
                bodies = [message.body for message in await reader.pull(timeout_s=HANG_S)]
                while len(bodies) < 2:
                    bodies += [each.body for each in await reader.pull(timeout_s=HANG_S)]
            assert sorted(bodies) == [b"plain", b"safe"]


async def test_who_meets_the_wrong_kind_of_port_is_told_what_to_do(
    store: Path, authority: Authority
) -> None:
    options = authority.issue(hosts=("127.0.0.1",)).options()
    async with Daemon(store, *options, "--set=tlsServerMode=enforcing") as daemon:
        by_name = daemon.nameserver.replace("127.0.0.1", "localhost")
        for nameserver, tls, says in (
            (daemon.nameserver, False, "use tls=True"),
            (daemon.nameserver, True, "unknown CA"),
            (by_name, TlsOptions(authority.ca), "a different name"),
        ):
            with pytest.raises(BrokerUnreachableError, match=says):
                async with Admin(nameserver, tls=tls) as admin:
                    await admin.topics()
        await send(daemon.nameserver, TlsOptions(verify=False))


async def test_a_client_with_tls_at_a_plain_port_is_told_so(store: Path) -> None:
    async with Daemon(store) as daemon:
        with pytest.raises(BrokerUnreachableError, match="does not speak TLS"):
            async with Admin(daemon.nameserver, tls=True) as admin:
                await admin.topics()


async def test_who_shows_no_certificate_is_refused_where_one_is_required(
    store: Path, authority: Authority
) -> None:
    required = ("--set=tlsClientAuth=require", f"--set=tlsTrustCertPath={authority.ca}")
    async with Daemon(store, *authority.issue().options(), *required) as daemon:
        await send(daemon.nameserver, TlsOptions(authority.ca, *authority.issue("client")))
        with pytest.raises(BrokerUnreachableError):
            async with Admin(daemon.nameserver, tls=TlsOptions(authority.ca)) as admin:
                await admin.topics()


async def test_a_pair_that_cannot_be_used_stops_the_start_with_a_sentence(
    store: Path, authority: Authority
) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    mixed = (f"--set=tlsCertPath={one.certificate}", f"--set=tlsKeyPath={other.key}")
    code, text = await Daemon(store, *mixed).fail(*FREE)
    assert code == 2
    assert "command line: setting tlsCertPath=" in text
    assert "does not belong to the certificate" in text
    assert "Traceback" not in text


async def test_brokers_side_by_side_register_with_tls_and_a_certificate_of_their_own(
    store: Path,
) -> None:
    options = ("--brokers", "2", "--set=tlsServerMode=enforcing")
    async with Daemon(store, *options) as daemon:
        made = store / "config" / "tls" / "certificate.pem"
        assert len(daemon.brokers) == 2
        async with Admin(daemon.nameserver, tls=TlsOptions(made)) as admin:
            assert len(await admin.brokers()) == 2


@pytest.mark.costly
async def test_no_send_fails_while_certificates_change(store: Path, authority: Authority) -> None:
    pair, trusting = authority.issue(days=10), TlsOptions(authority.ca)
    async with Daemon(store, *pair.options()) as daemon:
        stopped = asyncio.Event()

        async def send_on() -> int:
            sent = 0
            async with Producer(daemon.nameserver, tls=trusting, retries=0) as producer:
                while not stopped.is_set():
                    await producer.send(Message("orders", b"%d" % sent))
                    await send(daemon.nameserver, trusting)
                    sent += 1
            return sent

        sending = asyncio.create_task(send_on())
        new = authority.issue("new", days=20)
        os.replace(new.key, pair.key)
        os.replace(new.certificate, pair.certificate)
        async with asyncio.timeout(HANG_S):
            while not any("new certificate" in line["event"] for line in daemon.lines):
                await asyncio.wait([sending], timeout=0.05)
                assert not sending.done()
        stopped.set()
        assert await sending > 0


@pytest.mark.costly
async def test_floods_of_silence_and_half_handshakes_hold_up_nobody(
    store: Path, authority: Authority
) -> None:
    async with Daemon(store, *authority.issue().options()) as daemon:
        trusting = TlsOptions(authority.ca)
        host, port = split_address(daemon.address)
        assert port is not None
        async with Producer(daemon.nameserver, tls=trusting) as producer:
            await producer.send(Message("orders", b"before"))
            flood = [socket.create_connection((host, port)) for _ in range(2 * FLOOD)]
            for each in flood[:FLOOD]:
                each.send(b"\x16\x03\x01\x02\x00half of a hello")
            async with asyncio.timeout(HANG_S):
                for _ in range(50):
                    await producer.send(Message("orders", b"meanwhile"))
                await send(daemon.nameserver, trusting)
                await send(daemon.nameserver, False)
        for each in flood:
            each.close()


async def test_a_follower_copies_over_tls(authority: Authority) -> None:
    pair = authority.issue()
    sealed = {
        "tlsServerMode": "enforcing",
        "tlsCertPath": str(pair.certificate),
        "tlsKeyPath": str(pair.key),
    }
    master = {"haMode": "classic", "haListenPort": str(free_port())}
    async with Broker.temporary(sealed | master) as leading:
        await send(leading.nameserver, TlsOptions(authority.ca))
        end = leading.store.log.written_offset
        assert end > 0
        async with Broker.temporary(sealed | {"followMaster": leading.address}) as following:
            await until(lambda: following.store.log.written_offset == end)


async def test_who_a_balancer_announces_is_no_administrator_of_this_host() -> None:
    header = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 10911\r\n"
    balanced = {"proxyProtocol": "true", "proxyProtocolFrom": "127.0.0.1"}
    async with Broker.temporary(balanced) as broker, RawPeer(broker.address) as peer:
        peer.send(header)
        assert (await peer.ask(RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.NO_PERMISSION
        (connection,) = broker.servers.remoting.connections
        assert (connection.peer, connection.principal.host) == ("192.0.2.7:56324", "192.0.2.7")
        async with RawPeer(broker.address) as direct:
            assert (await direct.ask(RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS
