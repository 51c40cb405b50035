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


async def test_a_search_is_limited_by_count_and_by_store_time(shell: CommandLine) -> None:
    for body in ("first", "second", "third"):
        await shell.run("send", "orders", body, "--key", "k")
    newest = await shell.run("query", "orders", "k", "--max", "1", "--json")
    assert [each["body"] for each in newest.objects] == ["third"]
    past = await shell.run("query", "orders", "k", "--to", "2001-01-01T00:00", "--json")
    assert past.objects == []
    since = await shell.run("query", "orders", "k", "--from", "2001-01-01T00:00", "--json")
    assert len(since.objects) == 3
    position = await shell.run("query", "orders", "k", "--from", "earliest")
    assert (position.code, "--from takes a time" in position.err) == (2, True)


async def test_what_is_no_id_is_refused_with_the_way_to_search(shell: CommandLine) -> None:
    ended = await shell.run("message", "k")
    assert ended.code == 2
    assert "rockhopper query" in ended.err
    both = await shell.run("message", "0" * 32, "--raw", "--json")
    assert (both.code, "--raw and --json exclude each other" in both.err) == (2, True)


async def test_a_delayed_message_says_what_it_waits_for(shell: CommandLine) -> None:
    sent = await shell.run("send", "orders", "later", "--delay", "1h", "--json")
    shown = await shell.run("message", sent.objects[0]["offsetMessageId"])
    facts = dict(line.split("  ", 1) for line in shown.out.splitlines() if "  " in line.strip())
    assert facts["waits for"].strip() == "orders"
    assert facts["comes"].strip() != "-"


async def test_a_raw_body_is_printed_byte_for_byte(shell: CommandLine) -> None:
    sent = await shell.run("send", "orders", "a\nb", "--json")
    assert (await shell.run("message", sent.objects[0]["messageId"], "--raw")).out == "a\nb"
