"""`rockhopper query` and `rockhopper message` against our broker."""

from tests.support.command_line import CommandLine


async def test_messages_are_found_by_key_and_id(shell: CommandLine) -> None:
    await shell.run("send", "orders", "first", "--key", "k")
    sent = await shell.run("send", "orders", "second\nline", "--key", "k", "--json")
    found = await shell.run("query", "orders", "--key", "k", "--json")
    assert [each["body"] for each in found.objects] == ["second\nline", "first"]
    assert len((await shell.run("query", "orders", "--key", "k")).out.splitlines()) == 3
    assert (await shell.run("query", "orders", "k", "--json")).objects == found.objects
    unclear = await shell.run("query", "orders", "k", "--key", "k")
    assert (unclear.code, "give one KEY" in unclear.err) == (2, True)
    assert (await shell.run("query", "orders")).code == 2
    nothing = await shell.run("query", "orders", "--key", "none")
    assert (nothing.code, nothing.out) == (0, "")
    for name in ("messageId", "offsetMessageId"):
        shown = await shell.run("message", sent.objects[0][name])
        assert shown.out.endswith("\nsecond\nline\n")
    assert (await shell.run("message", "0" * 32)).code == 1
