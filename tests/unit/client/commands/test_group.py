"""`rockhopper group` against our broker."""

import asyncio
from datetime import datetime

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.name_server.alone import NameServer
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client import Consumer, Producer
from rockhopper.client.consuming.notifications import Notifications
from rockhopper.client.received import ReceivedMessage
from tests.support.command_line import CommandLine
from tests.support.hang import HANG_S
from tests.support.shell import consume


async def send(broker: Broker, count: int, queue: int = 0) -> None:
    async with Producer(broker.nameserver) as producer:
        for number in range(count):
            await producer.send("orders", b"%d" % number, queue=queue)


async def test_nobody_consumes_yet(shell: CommandLine) -> None:
    listed = await shell.run("group", "list")
    assert (listed.code, listed.out) == (0, "")
    assert listed.err == "no groups yet (--all shows those of tools and brokers)\n"
    assert "TOOLS_CONSUMER" in (await shell.run("group", "list", "--all")).out


async def test_a_group_is_created_and_changed(broker: Broker, shell: CommandLine) -> None:
    created = await shell.run("group", "create", "billing", "--orderly")
    assert created.out == f"billing is a group on broker-a ({broker.address})\n"
    await shell.run("group", "create", "billing", "--retries", "5")
    settings = broker.tables.groups.get("billing")
    assert settings is not None
    assert (settings.consume_message_orderly, settings.retry_max_times) == (True, 5)
    await shell.run("group", "create", "billing", "--concurrent")
    settings = broker.tables.groups.get("billing")
    assert settings is not None
    assert (settings.consume_message_orderly, settings.retry_max_times) == (False, 5)
    assert (await shell.run("group", "create", "bad name")).code == 2


async def test_groups_that_are_furthest_behind_come_first(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 5)
    await consume(broker, 2)
    await shell.run("group", "create", "audit")
    listed = (await shell.run("group", "list", "--by-lag", "--json")).objects
    assert [(each["group"], each["lag"]) for each in listed] == [("billing", 3), ("audit", 0)]
    assert (await shell.run("group", "list")).rows[1][0] == "audit"


async def test_groups_are_listed_with_members_and_lag(broker: Broker, shell: CommandLine) -> None:
    await send(broker, 5)
    await consume(broker, 2)
    async with Consumer("reporting", "orders", nameserver=broker.nameserver, broadcast=True):
        listed = (await shell.run("group", "list", "--json")).objects
        assert listed[0].pop("lagSeconds") > 0
        assert listed == [
            {"group": "billing", "members": 0, "model": None, "topics": ["orders"], "lag": 3},
            {
                "group": "reporting",
                "members": 1,
                "model": "BROADCASTING",
                "topics": ["orders"],
                "lag": None,
                "lagSeconds": None,
            },
        ]
        header, *rows = (await shell.run("group", "list")).rows
        assert header == ["GROUP", "MEMBERS", "MODEL", "LAG", "OLDEST", "TOPICS"]
        assert (rows[0][:4], rows[0][5:]) == (["billing", "0", "-", "3"], ["s", "orders"])
        assert rows[1] == ["reporting", "1", "broadcast", "-", "-", "orders"]


async def test_a_group_is_shown_with_everything_about_it(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 3)
    async with Consumer(
        "billing", {"orders": "new || paid"}, nameserver=broker.nameserver, start_from="latest"
    ) as consumer:
        (shown,) = (await shell.run("group", "show", "billing", "--json")).objects
        text = (await shell.run("group", "show", "billing")).out
    (member,) = shown["members"]
    assert (member["clientId"], member["language"]) == (consumer.client_id, "PYTHON")
    assert shown["subscriptions"]["orders"] == "new || paid"
    assert (shown["consistent"], "differently" in text) == (True, False)
    assert (shown["model"], shown["startFrom"]) == ("CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    assert shown["settings"]["broker-a"]["retryMaxTimes"] == 16
    orders = [each for each in shown["queues"] if each["topic"] == "orders"]
    assert {each["owner"] for each in orders} == {consumer.client_id}
    assert [each["brokerOffset"] for each in orders] == [3, 0, 0, 0]
    assert "new || paid" in text
    assert "16 retries, consuming allowed" in text
    assert consumer.client_id in text.splitlines()[-2]


async def test_members_that_subscribe_differently_are_shown_each(
    broker: Broker, shell: CommandLine
) -> None:
    new = Consumer("billing", {"orders": "new"}, nameserver=broker.nameserver)
    paid = Consumer("billing", {"orders": "paid"}, nameserver=broker.nameserver)
    async with new, paid:
        (shown,) = (await shell.run("group", "show", "billing", "--json")).objects
        text = (await shell.run("group", "show", "billing")).out
    assert shown["consistent"] is False
    assert shown["filters"][paid.client_id] == {"orders": "paid"}
    assert "The members have different subscriptions" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["MEMBER", "MODEL", "SUBSCRIBES", "TO", "FILTER"] in rows
    assert [new.client_id, "shared", "orders", "new"] in rows
    assert [paid.client_id, "shared", "orders", "paid"] in rows


async def test_message_models_that_differ_are_shown_though_no_member_answers(
    broker: Broker, shell: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(broker, 1)
    monkeypatch.setattr(Notifications, "handle", lambda *_: None)
    quiet = Consumer("billing", "orders", nameserver=broker.nameserver)
    loud = Consumer("billing", "orders", nameserver=broker.nameserver, broadcast=True)
    async with quiet, loud:
        (shown,) = (await shell.run("group", "show", "billing", "--json")).objects
        text = (await shell.run("group", "show", "billing")).out
    assert (shown["consistent"], shown["model"]) == (False, "CLUSTERING")
    assert shown["models"] == {quiet.client_id: "CLUSTERING", loud.client_id: "BROADCASTING"}
    assert "The members have different subscriptions" in text
    rows = [line.split() for line in text.splitlines()]
    assert [quiet.client_id, "shared", "orders", "*"] in rows
    assert [loud.client_id, "broadcast", "orders", "*"] in rows


async def test_members_that_do_not_tell_are_counted(
    broker: Broker, shell: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notifications, "handle", lambda *_: None)
    async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
        (shown,) = (await shell.run("group", "show", "billing", "--json")).objects
        text = (await shell.run("group", "show", "billing")).out
    assert shown["silent"] == [consumer.client_id]
    assert "1 member did not report their queues in time" in text


async def test_owners_have_numbers_where_the_terminal_is_narrow(
    broker: Broker, shell: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(broker, 1)
    monkeypatch.setattr("rockhopper.client.commands.group._is_narrow", lambda: True)
    async with Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
        shown = await shell.run("group", "show", "billing")
    assert ["#1", consumer.client_id] in [row[:2] for row in shown.rows]
    assert shown.rows[-2][-1] == "#1"


async def test_lag_is_told_for_each_queue_and_in_all(broker: Broker, shell: CommandLine) -> None:
    await send(broker, 5)
    await consume(broker, 2)
    lag = await shell.run("group", "lag", "billing", "--json")
    first = next(each for each in lag.objects if each["topic"] == "orders" and each["queue"] == 0)
    assert (first["brokerOffset"], first["consumerOffset"], first["lag"]) == (5, 2, 3)
    assert first["lagSeconds"] > 0
    assert sorted(each["lagSeconds"] for each in lag.objects)[:-1] == [0, 0, 0, 0]
    (state,) = (await shell.run("group", "show", "billing", "--json")).objects
    assert state["lagSeconds"] >= first["lagSeconds"]
    assert first["lastTimestamp"] == broker.store.reading.store_time("orders", 0, 1)
    shown = await shell.run("group", "lag", "billing")
    assert shown.out.endswith("\n3 messages behind in 1 queue\nno member is online\n")
    assert shown.rows[-3][:2] == ["TOTAL", "3"]
    assert (await shell.run("group", "lag", "billing", "--total")).out == "3\n"
    (total,) = (await shell.run("group", "lag", "billing", "--total", "--json")).objects
    assert total.pop("lagSeconds") >= first["lagSeconds"]
    assert total == {"group": "billing", "lag": 3, "queues": len(lag.objects), "members": 0}
    async with Consumer("billing", "orders", nameserver=broker.nameserver):
        shown = await shell.run("group", "lag", "billing")
    assert shown.out.endswith(
        "\n1 member online; which member reads what: rockhopper group show billing\n"
    )


async def test_what_has_expired_is_no_lag(broker: Broker, shell: CommandLine) -> None:
    await send(broker, 5)
    await consume(broker, 2)
    broker.store.visibility.purge_topics(["orders"])
    await send(broker, 1)
    assert "1 message behind" in (await shell.run("group", "lag", "billing")).out


@pytest.mark.parametrize(
    ("target", "after"),
    [("earliest", 0), ("latest", 5), ("-1h", 0), ("3", 3), ("99", 5)],
)
@pytest.mark.parametrize("settings", [{}, {"useServerSideResetOffset": "false"}], ids=["222", "15"])
async def test_a_group_that_is_offline_is_reset(
    target: str, after: int, settings: dict[str, str]
) -> None:
    async with Broker.temporary(settings) as broker:
        shell = CommandLine(broker.nameserver)
        await send(broker, 5)
        await consume(broker, 2)
        arguments = (
            "group",
            "reset",
            "billing",
            "--topic",
            "orders",
            "--to",
            target,
            "--json",
            "--yes",
        )
        for options in (["--dry-run"], []):
            ended = await shell.run(*arguments, *options)
            assert ended.code == 0, ended.err
            (first, *_) = ended.objects
            assert (first["queue"], first["before"], first["after"]) == (0, 2, after)
            expected = 2 if options else after
            assert broker.tables.offsets.get("orders", "billing", 0) == expected


async def test_single_queues_are_reset(broker: Broker, shell: CommandLine) -> None:
    for queue in (0, 1):
        await send(broker, 3, queue)
    await consume(broker, 6)
    reset = await shell.run(
        *("group", "reset", "billing", "--topic", "orders", "--to", "1", "-q", "broker-a:1", "-y")
    )
    assert reset.rows[:-1] == [
        ["TOPIC", "BROKER", "QUEUE", "BEFORE", "AFTER", "MOVED"],
        ["orders", "broker-a", "1", "3", "1", "-2"],
    ]
    assert reset.out.endswith("to offset 1: 2 messages consumed again, 0 messages skipped\n")
    assert [broker.tables.offsets.get("orders", "billing", queue) for queue in (0, 1)] == [3, 1]
    wrong = await shell.run("group", "reset", "billing", "-t", "orders", "--to", "1", "-q", "9")
    assert (wrong.code, wrong.out) == (1, "")
    assert "has no queue 9" in wrong.err


async def test_a_preview_shows_the_time_that_was_understood_with_its_zone(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 3)
    await consume(broker, 2)
    arguments = ("group", "reset", "billing", "-t", "orders", "--dry-run", "--to")
    shown = await shell.run(*arguments, "2020-11-29")
    zone = datetime(2020, 11, 29).astimezone().strftime("%Z")
    told = f"to 2020-11-29 00:00:00 {zone}: 2 messages consumed again, 0 messages skipped"
    assert shown.out.splitlines()[-1] == told
    refused = await shell.run(*arguments, "20201129")
    assert (refused.code, "is ambiguous: write" in refused.err) == (2, True)


async def test_members_go_on_where_their_group_was_reset_to(
    broker: Broker, shell: CommandLine
) -> None:
    seen: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    await send(broker, 3)
    async with Consumer("billing", "orders", nameserver=broker.nameserver, handler=seen.put):
        async with asyncio.timeout(HANG_S):
            first = [(await seen.get()).body for _ in range(3)]
            reset = await shell.run(
                "group", "reset", "billing", "-t", "orders", "--to", "earliest", "--yes"
            )
            assert reset.code == 0
            assert [(await seen.get()).body for _ in range(3)] == first


async def test_a_group_is_deleted_with_what_is_asked_for(
    broker: Broker, shell: CommandLine
) -> None:
    await send(broker, 3)
    await consume(broker, 2)
    deleted = await shell.run("group", "delete", "billing", "--yes")
    assert deleted.out == f"deleted billing on broker-a ({broker.address})\n"
    assert "billing" not in broker.tables.groups
    assert broker.tables.offsets.get("orders", "billing", 0) == 2
    assert "%RETRY%billing" in broker.tables.topics
    broker.tables.topics.ensure_dlq_topic("billing")
    options = ("--offsets", "--retry-topic", "--dead-letters", "--yes")
    assert (await shell.run("group", "delete", "billing", *options)).code == 0
    assert broker.tables.offsets.topics_of("billing") == []
    assert not {"%RETRY%billing", "%DLQ%billing"} & set(broker.tables.topics.configs)
    again = await shell.run("group", "delete", "billing")
    assert (again.code, again.out) == (1, "")
    assert "knows group 'billing'" in again.err


async def test_members_that_are_online_are_mentioned(broker: Broker, shell: CommandLine) -> None:
    async with Consumer("billing", "orders", nameserver=broker.nameserver):
        deleted = await shell.run("group", "delete", "billing", "--yes")
        assert deleted.code == 0
        assert deleted.err.startswith("rockhopper: 1 of its members are online")


async def test_a_group_that_nobody_knows_is_one_sentence(shell: CommandLine) -> None:
    for arguments in (["show", "nobody"], ["lag", "nobody"]):
        ended = await shell.run("group", *arguments)
        assert (ended.code, ended.out) == (1, "")
        assert len(ended.err.splitlines()) == 1
        assert "rockhopper group list" in ended.err


async def test_all_masters_are_asked_and_told(broker: Broker, shell: CommandLine) -> None:
    other = Broker.temporary(
        {"role": "broker", "namesrvAddr": broker.nameserver, "brokerName": "broker-b"}
    )
    async with other, Producer(broker.nameserver) as producer:
        await other.announce()
        await shell.run("topic", "create", "orders", "--queues", "1")
        for number in range(10):
            await producer.send("orders", b"%d" % number)
        await consume(broker, 10)
        (listed,) = (await shell.run("group", "list", "--json")).objects
        assert (listed["group"], listed["lag"]) == ("billing", 0)
        reset = await shell.run(
            "group", "reset", "billing", "-t", "orders", "--to", "earliest", "--yes"
        )
        assert [row[1] for row in reset.rows[1:-1]] == ["broker-a", "broker-b"]
        lag = (await shell.run("group", "lag", "billing", "--json")).objects
        assert sum(each["lag"] for each in lag) == 10
        assert {each["broker"] for each in lag if each["lag"]} == {"broker-a", "broker-b"}
        purged = await shell.run("topic", "purge", "orders", "--yes")
        assert len(purged.rows) == 2
        assert "\nno queue is behind\n" in (await shell.run("group", "lag", "billing")).out
        deleted = await shell.run("group", "delete", "billing", "--offsets", "--yes")
        assert len(deleted.rows) == 2
        assert "billing" not in {*broker.tables.groups.groups, *other.tables.groups.groups}


@pytest.mark.parametrize(
    "command",
    ["topic list", "group list", "dlq list", "broker status", "topic create orders", "cluster"],
)
async def test_a_name_service_without_brokers_is_not_an_empty_one(command: str) -> None:
    settings = {"role": "nameserver", "namesrvPort": "0", "httpPort": "-1"}
    names = NameServer(build_config(settings))
    await names.start()
    try:
        ended = await CommandLine(names.address).run(*command.split())
    finally:
        await names.stop()
    assert (ended.code, ended.out) == (1, "")
    assert "knows no broker at all; start one that registers there" in ended.err


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
async def test_a_group_that_there_is_not_cannot_be_moved(option: str) -> None:
    async with Broker.temporary() as broker, Producer(broker.nameserver) as producer:
        await producer.send("orders", b"x")
        command = ["group", "reset", "nobody", "--topic", "orders", "--to", "latest", option]
        ended = await CommandLine(broker.nameserver).run(*command)
    assert (ended.code, ended.out) == (1, "")
    assert "knows group 'nobody'; list the existing ones with `rockhopper group list`" in ended.err
