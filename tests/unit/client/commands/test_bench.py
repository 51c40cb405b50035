"""`rockhopper bench` against our broker."""

from tests.support.command_line import CommandLine


async def test_a_benchmark_measures_and_leaves_nothing_behind(shell: CommandLine) -> None:
    measured = (await shell.run("bench", "--count", "500", "--json")).objects
    assert [each["messages"] for each in measured] == [500, 512, 1012]
    assert all(each["messagesPerSecond"] > 0 for each in measured)
    assert (await shell.run("topic", "list")).out == ""
