"""`rockhopper trace`."""

import asyncio
import re

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Consumer, Message, Producer
from rockhopper.client.commands.messages.trace import TraceEvent, parse_events
from rockhopper.client.commands.screen.fitting import fit_table
from tests.support.command_line import CommandLine
from tests.support.dead_letters import fail_on_all, send
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
    assert ["billing", "waits", "0", "before", "it"] in [
        line.split() for line in shown.splitlines()
    ]


async def test_on_a_narrow_terminal_all_of_it_is_readable(
    broker: Broker, shell: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("topic", "create", "orders", "--queues", "1")
    async with Producer(broker.nameserver, trace=True, group="g" * 40) as producer:
        sent = await producer.send("orders", b"x")
    monkeypatch.setattr(
        "rockhopper.client.commands.output.fit_table",
        lambda columns, rows, _, **how: fit_table(columns, rows, 80, **how),
    )
    shown = (await shell.run("trace", sent.message_id)).out
    assert re.search(rf"\n  at {broker.address} in \d+ ms\n", shown)


async def test_what_failed_is_traced_by_its_id_alone(broker: Broker, shell: CommandLine) -> None:
    await shell.run("topic", "create", "orders", "--queues", "1")
    (message_id,) = await send(broker, 1)
    await fail_on_all(broker, 1)
    shown = (await shell.run("trace", message_id)).out
    assert shown.startswith("orders\nbroker-a:0 offset 0, stored ")
    assert "\nbilling  dead letter  given up 2" in shown
    await shell.run("dlq", "requeue", "billing", "--yes")
    shown = (await shell.run("trace", message_id)).out
    assert shown.startswith("orders\nbroker-a:0 offset 0, stored ")
    assert "\nbilling  requeued  the copy waits; 0 before it\n" in shown
    (first,) = (await shell.run("message", message_id, "--json")).objects
    assert (first["topic"], first["offset"]) == ("orders", 0)


@pytest.mark.parametrize("topic", [(), ("--topic", "orders")])
@pytest.mark.parametrize("later", [{"delay_s": 3600}, {"delay_level": 17}])
async def test_what_is_delayed_says_when_it_comes_and_for_which_topic(
    broker: Broker, shell: CommandLine, later: dict[str, int], topic: tuple[str, ...]
) -> None:
    async with Producer(broker.nameserver) as producer:
        receipt = await producer.send(Message("orders", b"x", **later))  # type: ignore[arg-type]
    shown = (await shell.run("trace", receipt.message_id, *topic)).out
    assert shown.startswith("orders\ndue 2")
    assert "; until then it waits in\n" in shown
    facts = (await shell.run("message", receipt.message_id, *topic)).out.splitlines()
    told = dict(line.split(maxsplit=1) for line in facts if line.startswith(("waits", "comes")))
    assert told["waits"].split() == ["for", "orders"]
    assert told["comes"].startswith("2")
    (found,) = (await shell.run("trace", receipt.message_id, *topic, "--json")).objects
    assert found["topic"] == "orders"
    assert found["due"] > found["message"]["storeTime"]


async def test_a_delayed_message_is_not_found_in_another_topic(
    broker: Broker, shell: CommandLine
) -> None:
    async with Producer(broker.nameserver) as producer:
        receipt = await producer.send(Message("orders", b"x", delay_level=17))
        await producer.send("others", b"x")
    missing = await shell.run("trace", receipt.message_id, "--topic", "others")
    assert missing.code == 1
    assert "was found in the topic 'others'" in missing.err


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
    assert list(parse_events(text, MESSAGE_ID)) == [
        TraceEvent(100, "sent", "g", "10.0.0.1", "at b:1 in 3 ms"),
        TraceEvent(200, "delivered", "billing", "10.0.0.2", "redelivered, 2 before"),
        TraceEvent(230, "handled", "billing", "", "FAILED in 12 ms"),
    ]
