"""A host that has IPv6 alone: ids of 16-byte hosts, look-ups by them, groups."""

import contextlib
import socket

import pytest

from rockhopper import Admin, Broker, Consumer, Message, Producer
from rockhopper.protocol.message_ids import decode_offset_message_id


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize("broker_ip1", ["", "::1"])
async def test_a_message_goes_its_way_over_ipv6_and_is_found_by_its_id(broker_ip1: str) -> None:
    async with (
        Broker.temporary({"bindAddress": "::1", "brokerIP1": broker_ip1}) as broker,
        Producer(broker.nameserver) as producer,
        Admin(broker.nameserver) as admin,
    ):
        receipt = await producer.send(Message("orders", b"hello", keys=["k"]))
        host, port, _ = decode_offset_message_id(receipt.offset_message_id)
        assert (host, f"[{host}]:{port}") == ("::1", broker.address)
        async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
            received = await anext(aiter(consumer))
        found = await admin.message(receipt.offset_message_id)
        (by_key,) = await admin.messages_by_key("orders", "k")
        assert received.body == found.body == by_key.body == b"hello"
        assert (await admin.message(receipt.message_id, "orders")).body == b"hello"


async def test_two_brokers_of_one_port_have_ids_of_their_own() -> None:
    ids = set()
    for host in ("fd31::a", "fd31::b"):
        async with (
            Broker.temporary(
                {"bindAddress": "::1", "brokerIP1": host, "advertise": "any=[::1]"}
            ) as broker,
            Producer(broker.nameserver) as producer,
        ):
            receipt = await producer.send(Message("orders", b"hello"))
            ids.add(decode_offset_message_id(receipt.offset_message_id)[0])
    assert ids == {"fd31::a", "fd31::b"}
