"""Commands while one broker of two is away: the rest is shown or changed, and it is named."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin, Producer
from rockhopper.client.commands.shell import reachable_brokers
from tests.support.command_line import CommandLine
from tests.support.hung import hanging

READING = (
    ("topic", "list", "-l"),
    ("topic", "show", "orders"),
    ("group", "list"),
    ("group", "lag", "billing"),
    ("group", "show", "billing"),
    ("group", "reset", "billing", "-t", "orders", "--to", "earliest", "--dry-run"),
    ("dlq", "list"),
    ("dlq", "show", "billing"),
    ("pull", "orders"),
    ("query", "orders", "k-1"),
    ("top", "--once", "--interval", "0.2"),
    ("broker", "status"),
    ("broker", "config", "--live"),
    ("user", "list"),
    ("acl", "show"),
)
CHANGING = (
    ("topic", "create", "other"),
    ("topic", "purge", "orders", "--yes"),
    ("group", "create", "audit"),
    ("group", "reset", "billing", "-t", "orders", "--to", "earliest", "--yes"),
    ("broker", "config", "fileReservedTime=73"),
    ("group", "delete", "billing", "--yes"),
    ("topic", "delete", "orders", "--yes"),
)


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Broker]:
    """A second broker, with half of everything."""
    settings = {"role": "broker", "brokerName": "broker-z", "namesrvAddr": broker.nameserver}
    async with Broker.temporary(settings) as other:
        await other.announce()
        async with Producer(broker.nameserver) as producer, Admin(broker.nameserver) as admin:
            await admin.groups.create("billing")
            for topic in ("orders", "%DLQ%billing"):
                await admin.create_topic(topic, queues=1)
                await other.announce()
                for queue in (await admin.route(topic)).write_queues:
                    await producer.send(topic, b"at " + queue.broker_name.encode(), queue=queue)
                    if topic == "orders":
                        await admin.offsets.commit("billing", queue, 1)
        yield other


@pytest.fixture
async def refusing(other: Broker) -> Broker:
    """It is registered still, and nothing listens there."""
    await other.servers.remoting.close()
    return other


async def test_who_reads_gets_the_rest_the_silent_one_s_name_and_code_1(
    shell: CommandLine, refusing: Broker
) -> None:
    for command in READING:
        ended = await shell.run(*command)
        away = [line for line in ended.err.splitlines() if refusing.address in line]
        assert len(away) == 1, (command, ended)
        assert away[0].startswith(
            f"rockhopper: not reachable: broker-z ({refusing.address} refused"
        ), away
        assert away[0].endswith(": not asked"), away
        assert ended.code == 1, command
        assert "at broker-z" not in ended.out, command
    assert "at broker-a" in (await shell.run("pull", "orders")).out
    assert (await shell.run("group", "show", "billing")).out.count("orders") == 1


async def test_who_changes_changes_the_rest(shell: CommandLine, refusing: Broker) -> None:
    for command in CHANGING:
        ended = await shell.run(*command)
        (away,) = [line for line in ended.err.splitlines() if refusing.address in line]
        assert away.endswith(": not changed"), away
        assert ended.code == 1, (command, ended)
        assert ended.out.strip(), command


async def test_one_that_the_name_service_misses_is_named(shell: CommandLine, other: Broker) -> None:
    await other.stop()
    for commands, done, code in ((READING, "asked", 0), (CHANGING, "changed", 1)):
        for command in commands:
            ended = await shell.run(*command)
            (away,) = [line for line in ended.err.splitlines() if "broker-z" in line]
            assert away.startswith("rockhopper: not reachable: broker-z (last seen "), away
            assert away.endswith(f" ago): not {done}"), away
            assert ended.code == code, (command, ended)


async def test_only_a_topic_s_brokers_matter_to_it(shell: CommandLine, refusing: Broker) -> None:
    await shell.run("topic", "create", "here", "--broker", "broker-a")
    ended = await shell.run("topic", "show", "here")
    assert (ended.code, ended.err) == (0, "")


async def test_the_one_that_is_asked_for_has_its_own_error(
    shell: CommandLine, refusing: Broker
) -> None:
    ended = await shell.run("broker", "status", "--broker", "broker-z")
    assert (ended.code, "not reachable" in ended.err, refusing.address in ended.err) == (
        1,
        False,
        True,
    )
    assert (await shell.run("broker", "status", "--broker", "broker-a")).code == 0


async def test_where_none_answers_that_is_said(shell: CommandLine, other: Broker) -> None:
    await shell.run("topic", "create", "there", "--broker", "broker-z")
    await other.servers.remoting.close()
    for command in (("topic", "show"), ("pull",)):
        ended = await shell.run(*command, "there")
        said = "rockhopper: no broker of the topic 'there' answers; not reachable: broker-z ("
        assert (ended.code, ended.err.startswith(said)) == (1, True), ended
        assert len(ended.err.splitlines()) == 1


async def test_one_that_hangs_is_waited_for_once(
    shell: CommandLine, other: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachable_brokers, "ANSWERS_WITHIN_S", 1.0)
    async with hanging(other) as hung:
        ended = await shell.run("group", "show", "billing")
    away = f"broker-z ({other.address} did not answer HEART_BEAT within 1 s): not asked\n"
    assert (ended.code, ended.err) == (1, f"rockhopper: not reachable: {away}")
    assert ("broker-a" in ended.out, hung.requests) == (True, 1)
