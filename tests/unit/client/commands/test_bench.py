"""`rockhopper bench` against our broker."""

import asyncio

from rockhopper.client.commands.bench import _measure, _Measured
from tests.support.command_line import CommandLine


async def test_a_benchmark_measures_and_leaves_nothing_behind(shell: CommandLine) -> None:
    measured = (await shell.run("bench", "--count", "500", "--json")).objects
    assert [each["messages"] for each in measured] == [500, 512, 1012]
    assert all(each["messagesPerSecond"] > 0 for each in measured)
    assert (await shell.run("topic", "list")).out == ""


async def test_a_table_has_a_row_for_each_way_and_names_its_options(shell: CommandLine) -> None:
    options = ("--count", "64", "--size", "10", "--in-flight", "8", "--batch", "4")
    ended = await shell.run("bench", *options)
    head, *rows, note = ended.out.splitlines()
    assert head.split()[:2] == ["CASE", "MESSAGES"]
    assert [row.partition("  ")[0] for row in rows] == [
        "single sends, 8 in flight",
        "batches of 4, 2 in flight",
        "pulls of 4, 4 in flight",
    ]
    assert "bodies of 10 bytes" in note


async def test_a_topic_that_is_given_is_used_and_stays(shell: CommandLine) -> None:
    await shell.run("topic", "create", "orders", "--queues", "1")
    await shell.run("send", "orders", "before")
    measured = (await shell.run("bench", "--topic", "orders", "--count", "32", "--json")).objects
    assert [each["messages"] for each in measured] == [32, 32, 64]
    assert "orders" in (await shell.run("topic", "list")).out


def test_percentiles_are_those_of_the_sorted_latencies() -> None:
    measured = _Measured("sends", 4, 1.0, [0.004, 0.001, 0.003, 0.002])
    assert [measured.percentile_ms(percent) for percent in (0, 50, 99)] == [1, 3, 4]
    assert _Measured("one", 1, 1.0, [0.005]).percentile_ms(99) == 5


async def test_as_many_requests_run_at_once_as_asked_for() -> None:
    running = most = 0

    async def request() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 2

    measured = await _measure("requests", request, total=20, step=2, under_way=3)
    assert (most, measured.messages, len(measured.latencies_s)) == (3, 20, 10)
