"""`rockhopper acl` against a broker with users."""

import pytest

from tests.support.command_line import CommandLine


async def test_rules_decide_and_say_so(shell: CommandLine, secret_file: str) -> None:
    await shell.run("user", "add", "alice", "--secret-file", secret_file)
    asked = ("acl", "test", "alice", "Pub", "Topic:orders", "--from", "10.1.2.3")
    denied = await shell.run(*asked)
    assert (denied.code, denied.out) == (1, "broker-a: denied: no rule matches\n")
    allowed = await shell.run("acl", "allow", "alice", "Topic:ord*", "Pub", "--from", "10.0.0.0/8")
    assert allowed.out == "alice may Pub Topic:ord* on broker-a\n"
    decided = await shell.run(*asked)
    assert decided.out == (
        "broker-a: allowed: allow Pub on Topic:ord* from 10.0.0.0/8 (Custom policy)\n"
    )
    await shell.run("acl", "deny", "alice", "Topic:orders", "All")
    (decision,) = (await shell.run(*asked, "--json")).objects
    assert decision["isAllowed"] is False
    shown = (await shell.run("acl", "show", "alice")).out
    assert "Topic:ord*" in shown
    assert "10.0.0.0/8" in shown
    await shell.run("acl", "remove", "alice", "Topic:orders")
    assert (await shell.run(*asked)).code == 0
    await shell.run("acl", "remove", "alice")
    assert (await shell.run("acl", "show", "--json")).objects == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("acl", "allow", "nobody", "*", "Pub"), "there is no user nobody"),
        (("acl", "allow", "root", "Queue:x", "Pub"), "is not a resource"),
        (("acl", "allow", "root", "*", "Eat"), "is not an action"),
        (("acl", "allow", "root", "*", "Pub", "--from", "here"), "neither an address"),
        (("acl", "test", "root", "Pub", "Topic:*"), "name one resource"),
    ],
)
async def test_what_makes_no_sense_is_said(
    shell: CommandLine, arguments: tuple[str, ...], said: str
) -> None:
    done = await shell.run(*arguments)
    assert done.code == 1
    assert said in done.err


async def test_to_allow_is_to_add(shell: CommandLine, secret_file: str) -> None:
    await shell.run("user", "add", "alice", "--secret-file", secret_file)
    for action in ("Sub", "Pub"):
        await shell.run("acl", "allow", "alice", "Topic:orders", action)
    for action, code in (("Pub", 0), ("Sub", 0), ("Delete", 1)):
        asked = await shell.run("acl", "test", "alice", action, "Topic:orders")
        assert asked.code == code
    await shell.run("acl", "deny", "alice", "Topic:orders", "Sub")
    assert (await shell.run("acl", "test", "alice", "Pub", "Topic:orders")).code == 0
    assert (await shell.run("acl", "test", "alice", "Sub", "Topic:orders")).code == 1


async def test_an_unknown_user_has_no_rules_to_show(shell: CommandLine, secret_file: str) -> None:
    await shell.run("user", "add", "alice", "--secret-file", secret_file)
    assert (await shell.run("acl", "show", "alice")).code == 0
    shown = await shell.run("acl", "show", "alcie")
    assert shown.code == 1
    assert "there is no user alcie" in shown.err
