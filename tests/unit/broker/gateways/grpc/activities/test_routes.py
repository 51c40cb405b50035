"""QueryRoute and QueryAssignment."""

from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.activities.routes import BrokerQueues
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import MessageType, Permission
from tests.support.grpc_client import GrpcBroker, GrpcClient, request


def asking(host: str = "", port: int = 0, **fields: Any) -> Any:
    made = request("QueryRoute", topic="t", **fields)
    if host:
        made.endpoints.scheme = 3
        made.endpoints.addresses.add(host=host, port=port)
    return made


def address_of(queue: Any) -> tuple[str, int]:
    (address,) = queue.broker.endpoints.addresses
    return address.host, address.port


async def test_a_route_names_each_queue_and_what_may_be_done(
    served: GrpcBroker, client: GrpcClient
) -> None:
    served.tables.topics.put(TopicConfig("t", read_queue_nums=3, write_queue_nums=2))
    reply = await client.ask("QueryRoute", asking())
    assert [(each.id, each.permission) for each in reply.message_queues] == [
        (0, Permission.READ),
        (1, Permission.READ_WRITE),
        (2, Permission.READ_WRITE),
    ]
    assert {each.broker.name for each in reply.message_queues} == {"broker-a"}
    assert address_of(reply.message_queues[0]) == ("127.0.0.1", 8081)


@pytest.mark.parametrize(
    ("declared", "types"),
    [
        (None, [MessageType.NORMAL]),
        ("FIFO", [MessageType.FIFO]),
        (
            "MIXED",
            [
                MessageType.NORMAL,
                MessageType.FIFO,
                MessageType.DELAY,
                MessageType.TRANSACTION,
            ],
        ),
        ("UNSPECIFIED", []),
    ],
)
async def test_a_route_names_what_the_topic_takes(
    served: GrpcBroker, client: GrpcClient, declared: str | None, types: list[int]
) -> None:
    attributes = {} if declared is None else {"message.type": declared}
    served.tables.topics.put(TopicConfig("t", attributes=attributes))
    reply = await client.ask("QueryRoute", asking())
    assert list(reply.message_queues[0].accept_message_types) == types


async def test_a_topic_that_is_nowhere_is_said(client: GrpcClient) -> None:
    reply = await client.ask("QueryRoute", request("QueryRoute", topic="gone"))
    assert reply.status.code == Code.TOPIC_NOT_FOUND


async def test_the_address_by_which_a_client_came_is_told_to_it(
    served: GrpcBroker, client: GrpcClient
) -> None:
    reply = await client.ask("QueryRoute", asking("mq.example", 443))
    assert address_of(reply.message_queues[0]) == ("mq.example", 443)
    stranger = GrpcClient(served.gateway, peer_host="10.1.2.3")
    # It came by a tunnel: what is loopback there is another machine's.
    served.own_address = "10.1.2.1:8081"
    reply = await stranger.ask("QueryRoute", asking("127.0.0.1", 9))
    assert address_of(reply.message_queues[0]) == ("10.1.2.1", 8081)
    # It came by a port that its host has published: the settings say so.
    served.own_address = "127.0.0.1:8081"
    reply = await stranger.ask("QueryRoute", asking("127.0.0.1", 9))
    assert address_of(reply.message_queues[0]) == ("127.0.0.1", 9)


async def test_each_broker_has_its_own_address(served: GrpcBroker, client: GrpcClient) -> None:
    served.others = [BrokerQueues("broker-b", 1, 1, 6, "10.0.0.2:8081", False)]
    reply = await client.ask("QueryRoute", asking("mq.example", 443))
    addresses = {each.broker.name: address_of(each) for each in reply.message_queues}
    assert addresses == {"broker-a": ("127.0.0.1", 8081), "broker-b": ("10.0.0.2", 8081)}


@pytest.mark.parametrize(("is_fifo", "ids"), [(False, [-1]), (True, [0, 1, 2, 3])])
async def test_a_consumer_is_assigned_all_queues_at_once_or_each(
    served: GrpcBroker, client: GrpcClient, is_fifo: bool, ids: list[int]
) -> None:
    group = served.tables.groups.find_or_create("g")
    assert group is not None
    changed = group.to_json() | {"consumeMessageOrderly": is_fifo}
    served.tables.groups.put(type(group).from_json("g", changed))
    asked = request("QueryAssignment", topic="t", group="g")
    reply = await client.ask("QueryAssignment", asked)
    assert [each.message_queue.id for each in reply.assignments] == ids


async def test_nothing_to_read_is_assigned_to_nobody(
    served: GrpcBroker, client: GrpcClient
) -> None:
    served.create_topic("t", perm=2)
    asked = request("QueryAssignment", topic="t", group="g")
    assert (await client.ask("QueryAssignment", asked)).status.code == Code.FORBIDDEN
    reply = await client.ask("QueryRoute", asking())
    assert {each.permission for each in reply.message_queues} == {Permission.WRITE}
