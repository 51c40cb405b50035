"""`rockhopper dlq`: messages through the whole ladder into the dead letters, and back."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.client import (
    Admin,
)
from rockhopper.client.admin.group_states import REQUEUE_GROUP
from rockhopper.client.admin.message_forms import PROPERTY_REQUEUED
from tests.support.billing import AT_ONCE
from tests.support.command_line import CommandLine
from tests.support.dead_letters import fail_on_all, forge, send, take_all


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


async def _through_the_ladder_and_back(broker: Broker, count: int) -> None:
    shell = CommandLine(broker.nameserver)
    ids = await send(broker, count)
    # The first delivery, and 16 more.
    assert await fail_on_all(broker, count, at_once=False) == 17 * count
    (listed,) = (await shell.run("dlq", "list", "--json")).objects
    assert (listed["group"], listed["count"], listed["waiting"]) == ("billing", count, count)
    requeued = await shell.run("dlq", "requeue", "billing", "--yes")
    assert requeued.out == f"{count:,} dead letters of billing were sent to orders\n"
    back = await take_all(broker, count)
    assert sorted(each.message_id for each in back) == sorted(ids)
    assert sorted(int(each.body) for each in back) == list(range(count))
    for each in back:
        assert (each.reconsume_times, each.tags) == (0, "new")
        assert each.keys == [f"o-{each.body.decode()}"]
        assert each.properties["region"] == "eu"
        assert "ORIGIN_MESSAGE_ID" not in each.properties
    again = await shell.run("dlq", "requeue", "billing")
    assert (again.code, again.out) == (0, "")
    assert again.err == "group billing has no dead letters left to send back\n"


async def test_failing_messages_go_through_the_ladder_and_back(broker: Broker) -> None:
    await _through_the_ladder_and_back(broker, 20)


@pytest.mark.slow
async def test_a_thousand_failing_messages_go_through_the_ladder_and_back(broker: Broker) -> None:
    await _through_the_ladder_and_back(broker, 1000)


async def test_dead_letters_are_shown_with_where_they_come_from(
    broker: Broker, shell: CommandLine
) -> None:
    ids = await send(broker, 3)
    await fail_on_all(broker, 3)
    shown = (await shell.run("dlq", "show", "billing", "--json")).objects
    assert sorted(each["messageId"] for each in shown) == sorted(ids)
    for each in shown:
        assert (each["originTopic"], each["delivered"], each["requeued"]) == ("orders", 1, False)
        assert each["bornTime"] <= each["storeTime"]
    header, *rows = (await shell.run("dlq", "show", "billing", "--max", "2")).rows
    assert header == ["ID", "TOPIC", "DELIVERED", "SENT", "GIVEN", "UP", "REQUEUED", "BODY"]
    assert [row[1:3] for row in rows] == [["orders", "once"]] * 2


async def test_some_are_sent_back_now_and_the_others_later(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 5)
    await fail_on_all(broker, 5)
    dry = await shell.run("dlq", "requeue", "billing", "--dry-run")
    assert dry.out == "5 dead letters of billing would be sent to orders\n"
    unasked = await shell.run("dlq", "requeue", "billing")
    assert (unasked.code, unasked.out) == (2, "")
    assert "add --yes" in unasked.err
    first = (await shell.run("dlq", "requeue", "billing", "--yes", "--max", "2", "--json")).objects
    assert [each["fromOffset"] for each in first] == [0, 1]
    assert broker.tables.offsets.get("%DLQ%billing", REQUEUE_GROUP, 0) == 2
    waiting = (await shell.run("dlq", "show", "billing", "--waiting", "--json")).objects
    assert [each["offset"] for each in waiting] == [2, 3, 4]
    assert REQUEUE_GROUP not in (await shell.run("group", "list")).out
    rest = await shell.run("dlq", "requeue", "billing", "--yes")
    assert rest.out == "3 dead letters of billing were sent to orders\n"
    assert len({each.message_id for each in await take_all(broker, 5)}) == 5


async def test_a_single_one_is_not_sent_again_with_the_rest(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 3)
    await fail_on_all(broker, 3)
    ids = [
        each["messageId"] for each in (await shell.run("dlq", "show", "billing", "--json")).objects
    ]
    one = await shell.run("dlq", "requeue", "billing", "--yes", "--message-id", ids[1])
    assert one.out == "1 dead letter of billing was sent to orders\n"
    rest = await shell.run("dlq", "requeue", "billing", "--yes")
    assert rest.out == (
        "2 dead letters of billing were sent to orders\n"
        "1 had been sent by a requeue that was interrupted, or on their own\n"
    )
    assert sorted(each.message_id for each in await take_all(broker, 3)) == sorted(ids)
    unknown = await shell.run("dlq", "requeue", "billing", "--yes", "--message-id", "0" * 32)
    assert (unknown.code, unknown.out) == (1, "")


async def test_the_group_alone_gets_them_back(broker: Broker, shell: CommandLine) -> None:
    await send(broker, 2)
    await fail_on_all(broker, 2)
    high = [broker.store.reading.queue_range("orders", queue)[1] for queue in range(4)]
    sent = await shell.run("dlq", "requeue", "billing", "--yes", "--to", "%RETRY%billing")
    assert sent.out == "2 dead letters of billing were sent to %RETRY%billing\n"
    back = await take_all(broker, 2)
    assert {(each.topic, each.queue.topic) for each in back} == {("orders", "%RETRY%billing")}
    assert [broker.store.reading.queue_range("orders", queue)[1] for queue in range(4)] == high


async def test_one_that_fails_again_is_a_new_dead_letter(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 2)
    for count in (2, 4):
        await fail_on_all(broker, count)
        sent = await shell.run("dlq", "requeue", "billing", "--yes")
        assert sent.out == "2 dead letters of billing were sent to orders\n"
    back = await take_all(broker, 2)
    assert {each.properties[PROPERTY_REQUEUED] for each in back} == {
        "%DLQ%billing/broker-a/0:2",
        "%DLQ%billing/broker-a/0:3",
    }


async def test_what_cannot_be_sent_stays(broker: Broker, admin: Admin) -> None:
    await send(broker, 3)
    await fail_on_all(broker, 3)
    await admin.update_broker_config(broker.address, {"brokerPermission": "4"})
    shell = CommandLine(broker.nameserver)
    refused = await shell.run("dlq", "requeue", "billing", "--yes")
    assert (refused.code, refused.out) == (1, "")
    await admin.update_broker_config(broker.address, {"brokerPermission": "6"})
    sent = await shell.run("dlq", "requeue", "billing", "--yes")
    assert sent.out == "3 dead letters of billing were sent to orders\n"
    assert len(await take_all(broker, 3)) == 3


async def test_one_that_cannot_go_stays_and_the_others_go(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 1)
    await fail_on_all(broker, 1)
    await forge(broker, {})
    await send(broker, 1)
    await fail_on_all(broker, 3)
    foreseen = await shell.run("dlq", "requeue", "billing", "--dry-run")
    assert foreseen.out == "2 dead letters of billing would be sent to orders\n"
    most = await shell.run("dlq", "requeue", "billing", "--yes")
    assert (most.code, most.out) == (1, "2 dead letters of billing were sent to orders\n")
    assert "1 dead letter stayed: the dead letter at" in most.err
    assert "does not name its original topic; name a topic" in most.err
    (told,) = [
        each
        for each in (await shell.run("dlq", "requeue", "billing", "--yes", "--json")).objects
        if not each["sent"] and "problem" in each
    ]
    assert "does not name its original topic" in told["problem"]
    rest = await shell.run("dlq", "requeue", "billing", "--yes", "--to", "others")
    assert rest.out.startswith("1 dead letter of billing was sent to others\n")
    assert len(await take_all(broker, 2)) == 2


async def test_a_group_without_dead_letters_is_one_sentence(shell: CommandLine) -> None:
    for command in ("show", "requeue"):
        ended = await shell.run("dlq", command, "billing")
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == (
            "rockhopper: the group 'billing' has no dead letters: "
            "topic %DLQ%billing does not exist\n"
        )
    listed = await shell.run("dlq", "list")
    assert (listed.code, listed.err) == (0, "no group has dead letters\n")


async def test_a_list_that_is_empty_says_so_to_people_only(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 1)
    await fail_on_all(broker, 1)
    full = await shell.run("dlq", "show", "billing", "--waiting")
    assert (full.code, full.err) == (0, "")
    await shell.run("dlq", "requeue", "billing", "--yes")
    empty = await shell.run("dlq", "show", "billing", "--waiting")
    assert (empty.code, empty.out) == (0, "")
    assert empty.err == "the group billing has no such dead letters\n"
    empty = await shell.run("dlq", "show", "billing", "--waiting", "--json")
    assert (empty.code, empty.out, empty.err) == (0, "", "")
