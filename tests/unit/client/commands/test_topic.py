"""`rockhopper topic` against our broker."""

import asyncio

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin, ClientError, Consumer, Message, Producer
from rockhopper.client.received import ReceivedMessage
from tests.support.command_line import CommandLine
from tests.support.hang import HANG_S
from tests.support.shell import consume, send
from tests.support.turns import until


async def test_topics_are_made_shown_and_deleted(broker: Broker, shell: CommandLine) -> None:
    created = await shell.run("topic", "create", "orders", "--queues", "3")
    assert created.out == f"orders has 3 queues on broker-a ({broker.address})\n"
    await send(broker, b"x", queue=2)
    assert (await shell.run("topic", "list")).out == "orders\n"
    assert "TBW102" in (await shell.run("topic", "list", "--all")).out
    shown = (await shell.run("topic", "show", "orders", "--json")).objects
    assert [(each["queue"], each["maxOffset"]) for each in shown] == [(0, 0), (1, 0), (2, 1)]
    assert "1 message in 3 queues" in (await shell.run("topic", "show", "orders")).out
    assert (await shell.run("topic", "delete", "orders", "--yes")).code == 0
    again = await shell.run("topic", "delete", "orders", "--yes")
    assert (again.code, again.err) == (1, "rockhopper: there is no topic 'orders' to delete\n")


async def test_fewer_queues_hide_no_messages(broker: Broker, shell: CommandLine) -> None:
    await shell.run("topic", "create", "orders", "--queues", "4")
    for queue in range(4):
        await send(broker, b"%d" % queue, queue=queue)
    fewer = ("topic", "create", "orders", "--queues", "2")
    refused = await shell.run(*fewer)
    assert refused.code == 2
    assert "no consumer would read 2 messages in broker-a:2, broker-a:3 of orders" in refused.err
    assert len((await shell.run("topic", "show", "orders", "--json")).objects) == 4
    drained = await shell.run(*fewer, "--yes")
    assert drained.code == 0
    assert "broker-a:2, broker-a:3 still hold 2 messages" in drained.err
    async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
        bodies = {(await anext(aiter(consumer))).body for _ in range(4)}
    assert bodies == {b"0", b"1", b"2", b"3"}
    async with Producer(broker.nameserver) as producer:
        assert {queue.queue_id for queue in await producer.queues("orders")} == {0, 1}
    await shell.run("topic", "purge", "orders", "--yes")
    emptied = await shell.run(*fewer)
    assert (emptied.code, emptied.err) == (0, "")
    assert len((await shell.run("topic", "show", "orders", "--json")).objects) == 2


async def test_python_is_told_of_messages_that_fewer_queues_would_hide(broker: Broker) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=3)
        await send(broker, b"x", queue=2)
        with pytest.raises(ClientError, match=r"no consumer would read 1 messages in broker-a:2"):
            await admin.create_topic("orders", queues=2)
        await admin.create_topic("orders", queues=2, drain=True)
        route = await admin.route("orders")
    assert (len(route.read_queues), len(route.write_queues)) == (3, 2)


async def test_a_topic_is_purged(broker: Broker, shell: CommandLine) -> None:
    await send(broker, *[b"x"] * 5)
    await consume(broker, 2)
    purged = await shell.run("topic", "purge", "orders", "--yes")
    assert purged.out == f"purged orders on broker-a ({broker.address}): 5 messages\n"
    assert "\nno queue is behind\n" in (await shell.run("group", "lag", "billing")).out
    assert "0 messages in 4 queues" in (await shell.run("topic", "show", "orders")).out
    missing = await shell.run("topic", "purge", "missing", "--yes")
    assert (missing.code, missing.out) == (1, "")


async def test_nothing_that_is_sent_during_a_purge_is_lost(
    broker: Broker, shell: CommandLine
) -> None:
    seen: set[bytes] = set()
    done = asyncio.Event()

    async def take(message: ReceivedMessage) -> None:
        seen.add(message.body)
        if message.body == b"last":
            done.set()

    sent_after: set[bytes] = set()
    async with (
        Producer(broker.nameserver) as producer,
        Consumer("billing", "orders", nameserver=broker.nameserver, handler=take),
    ):
        await producer.send("orders", b"first")
        purging = asyncio.create_task(shell.run("topic", "purge", "orders", "--yes"))
        number = 0
        while not purging.done():
            await producer.send(Message("orders", b"%d" % number, keys=["k"]))
            number += 1
        ended = purging.result()
        for _ in range(20):
            await producer.send("orders", b"after %d" % number)
            sent_after.add(b"after %d" % number)
            number += 1
        await producer.send("orders", b"last", queue=0)
        async with asyncio.timeout(HANG_S):
            await done.wait()
            await until(lambda: sent_after <= seen)
    assert ended.code == 0


async def test_a_long_list_has_messages_rates_times_and_groups(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, *[b"x"] * 5)
    await consume(broker, 2)
    (told,) = (await shell.run("topic", "ls", "-l", "--json")).objects
    assert (told["topic"], told["messages"], told["groups"]) == ("orders", 5, ["billing"])
    assert isinstance(told["inPerSecond"], float)
    assert told["newestStoreTime"] > 1_700_000_000_000
    shown = await shell.run("topic", "list", "--long")
    assert shown.rows[0] == ["TOPIC", "MESSAGES", "IN/S", "NEWEST", "GROUPS"]
    assert (shown.rows[1][0], shown.rows[1][-1]) == ("orders", "billing")


async def test_a_topic_that_is_only_written_shows_what_it_holds(
    broker: Broker, shell: CommandLine
) -> None:
    await shell.run("topic", "create", "audit", "--queues", "2", "--perm", "w")
    await send(broker, b"x", queue=1, topic="audit")
    shown = (await shell.run("topic", "show", "audit", "--json")).objects
    assert [(each["queue"], each["maxOffset"]) for each in shown] == [(0, 0), (1, 1)]
    assert {(each["readable"], each["writable"]) for each in shown} == {(False, True)}
    table = await shell.run("topic", "show", "audit")
    assert table.rows[1][2] == "w"
    assert table.out.endswith("\n1 message in 2 queues\n")


async def test_a_topic_that_is_closed_says_so(shell: CommandLine) -> None:
    await shell.run("topic", "create", "audit", "--perm", "none")
    shown = await shell.run("topic", "show", "audit")
    assert (shown.code, shown.out) == (1, "")
    assert "neither readable nor writable" in shown.err
