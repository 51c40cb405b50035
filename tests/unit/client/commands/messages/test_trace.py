"""`rockhopper trace`."""

import asyncio

from rockhopper.broker import Broker
from rockhopper.client import Consumer, Producer
from rockhopper.client.commands.messages.trace import Event, events_of
from tests.support.command_line import CommandLine
from tests.support.hang import HANG_S

MESSAGE_ID = "C0000202585304E6B092652FA22F0002"


async def test_groups_that_passed_wait_and_gave_up_are_told_apart(
    broker: Broker, shell: CommandLine
) -> None:
    await shell.run("topic", "create", "orders", "--queues", "1")
    async with Producer(broker.nameserver, trace=True) as producer:
        first, second = [await producer.send("orders", b"%d" % n, queue=0) for n in range(2)]
    async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
        async with asyncio.timeout(HANG_S):
            await anext(aiter(consumer))
    (told,) = (await shell.run("trace", first.message_id, "--json")).objects
    assert told["message"]["messageId"] == first.message_id
    assert told["groups"] == [{"group": "billing", "state": "passed", "detail": "-"}]
    shown = (await shell.run("trace", second.message_id, "-t", "orders")).out
    assert "orders\nbroker-a:0 offset 1, stored " in shown
    assert ["billing", "waits", "0", "in", "front", "of", "it"] in [
        line.split() for line in shown.splitlines()
    ]


async def test_what_is_not_there_is_one_sentence(shell: CommandLine, broker: Broker) -> None:
    missing = await shell.run("trace", MESSAGE_ID)
    assert (missing.code, missing.out) == (1, "")
    assert "no message with the id" in missing.err


def test_records_of_clients_are_read_and_others_left_out() -> None:
    def record(*fields: str) -> str:
        return "\x01".join(fields) + "\x02"

    sent = ("Pub", "100", "R", "g", "orders", MESSAGE_ID, "t", "k", "b:1", "5", "3", "0", "OFF")
    text = (
        record(*sent, "true", "10.0.0.1")
        + record("SubBefore", "200", "R", "billing", "REQ", MESSAGE_ID, "2", "k", "10.0.0.2")
        + record("SubAfter", "REQ", MESSAGE_ID, "12", "false", "k", "2", "230", "billing")
        + record("SubAfter", "REQ", MESSAGE_ID)
        + record("Pub", "soon", MESSAGE_ID)
        + record("Recall", "300", "R", "g", "orders", "another", "true")
    )
    assert list(events_of(text, MESSAGE_ID)) == [
        Event(100, "sent", "g", "10.0.0.1", "at b:1 in 3 ms"),
        Event(200, "delivered", "billing", "10.0.0.2", "redelivered, 2 before"),
        Event(230, "handled", "billing", "", "FAILED in 12 ms"),
    ]
