"""`rockhopper user` against a broker with users."""

import json
from pathlib import Path

import pytest

from rockhopper.broker.app import Broker
from tests.support.command_line import CommandLine
from tests.unit.client.commands.security.conftest import SECRET


async def test_users_are_added_listed_changed_and_removed(
    broker: Broker, shell: CommandLine, secret_file: str
) -> None:
    added = await shell.run("user", "add", "alice", "--super", "--secret-file", secret_file)
    assert added.out == f"alice is a user on broker-a ({broker.address})\n"
    listed = (await shell.run("user", "list", "--json")).objects
    assert [(each["username"], each["userType"]) for each in listed] == [
        ("root", "Super"),
        ("alice", "Super"),
    ]
    assert "password" not in json.dumps(listed)
    assert "alice" in (await shell.run("user", "list")).out
    Path(secret_file).write_text("another secret of alice\n")
    assert (await shell.run("user", "passwd", "alice", "--secret-file", secret_file)).code == 0
    assert broker.tables.users.users["alice"].secret == "another secret of alice"
    assert (await shell.run("user", "remove", "alice", "--yes")).code == 0
    assert "alice" not in broker.tables.users.users


async def test_a_secret_is_long_and_on_no_command_line(
    shell: CommandLine, secret_file: str
) -> None:
    Path(secret_file).write_text("short\n")
    for more, said in ((["--secret-file", secret_file], "at least 12"), ([], "--secret-file")):
        done = await shell.run("user", "add", "bob", *more)
        assert done.code == 2
        assert said in done.err


async def test_a_file_says_as_whom_to_ask(
    broker: Broker, shell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKHOPPER_SECRET_KEY", "not that of root")
    path = tmp_path / "root.credentials"
    path.write_text(f"accessKey: root\nsecretKey: {SECRET}\n")
    path.chmod(0o600)
    refused = await shell.run("user", "list")
    assert refused.code == 1
    assert "signed as 'root' with the secret of $ROCKHOPPER_SECRET_KEY" in refused.err
    for arguments in (
        ("user", "list", "--credentials", str(path)),
        ("--credentials", str(path), "user", "list"),
    ):
        assert "root" in (await shell.run(*arguments)).out
    assert (await shell.run("user", "list")).code == 1
    path.write_text("accessKey: root\nsecretKey: wrong-one-of-root\n")
    refused = await shell.run("user", "list", "--credentials", str(path))
    assert f"signed as 'root' with the secret of the credentials file {path}" in refused.err
    assert "wrong-one" not in refused.err
    missing = await shell.run("user", "list", "--credentials", str(tmp_path / "gone"))
    assert missing.code == 2


async def test_who_was_never_there_is_not_removed(broker: Broker, shell: CommandLine) -> None:
    gone = await shell.run("user", "remove", "bililng", "--yes")
    assert gone.code == 1
    assert "there is no user bililng" in gone.err
