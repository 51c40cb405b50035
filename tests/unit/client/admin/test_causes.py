"""What is said of a topic or a group that is not found: the nearest, or who is away."""

import pytest

from rockhopper.broker import Broker
from rockhopper.client.admin.causes import explain, find_nearest
from rockhopper.client.errors import RouteNotFoundError
from rockhopper.protocol.codes import ResponseCode
from tests.support.command_line import CommandLine
from tests.support.shell import consume, send


async def test_a_slip_is_told_from_a_new_name(broker: Broker, shell: CommandLine) -> None:
    await send(broker, b"x")
    await consume(broker, 1)
    for arguments, near in (
        (["pull", "ordres"], "'orders'"),
        (["topic", "show", "Orders"], "'orders'"),
        (["topic", "delete", "oders", "--yes"], "'orders'"),
        (["group", "lag", "biling"], "'billing'"),
    ):
        ended = await shell.run(*arguments)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.endswith(f"; did you mean {near}?\n")
    other = await shell.run("pull", "payments")
    assert "if it never existed, create it with `rockhopper topic create payments`" in other.err


async def test_a_broker_that_went_is_named(broker: Broker, shell: CommandLine) -> None:
    other = Broker.temporary(
        {"role": "broker", "namesrvAddr": broker.nameserver, "brokerName": "broker-b"}
    )
    async with other:
        await other.announce()
        await shell.run("topic", "create", "payments", "--broker", "broker-b")
    ended = await shell.run("pull", "payments")
    assert ended.code == 1
    assert "may have it are down: broker-b (last seen " in ended.err
    assert "`rockhopper topic create payments`" in ended.err
    gone = await shell.run("topic", "delete", "payments", "--yes")
    assert "broker-b" in gone.err
    assert "topic create" not in gone.err
    assert "not reachable: broker-b" in (await shell.run("broker", "status", "-b", "broker-b")).err
    cluster = await shell.run("cluster")
    assert cluster.code == 0
    assert "rockhopper: not reachable: broker-b (last seen " in cluster.err


async def test_lists_that_are_refused_change_nothing() -> None:
    async with Broker.temporary({"enableAllTopicList": "false"}) as broker:
        await send(broker, b"x")
        ended = await CommandLine(broker.nameserver).run("pull", "ordres")
    assert "did you mean" not in ended.err
    assert "`rockhopper topic create ordres`" in ended.err


async def test_a_name_service_that_went_leaves_the_error_as_it_was() -> None:
    error = RouteNotFoundError("not there", code=ResponseCode.TOPIC_NOT_EXIST).about(topic="a")
    assert await explain(error, "127.0.0.1:1") is error


async def test_notes_stay_with_the_error(broker: Broker) -> None:
    error = RouteNotFoundError("not there").about(topic="ordres")
    error.add_note("2 were sent")
    await send(broker, b"x")
    better = await explain(error, broker.nameserver)
    assert str(better) == "not there; did you mean 'orders'?"
    assert better.__notes__ == ["2 were sent"]


@pytest.mark.parametrize(
    ("name", "near"),
    [("topic-00042x", "topic-00042"), ("TOPIC-00042", "topic-00042"), ("invoices", None)],
)
def test_the_nearest_of_ten_thousand(name: str, near: str | None) -> None:
    names = [f"topic-{number:05d}" for number in range(10_000)]
    assert find_nearest(name, names)[:1] == ([near] if near else [])
