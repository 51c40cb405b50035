"""`rockhopper user` against a broker with users."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.broker import Broker
from tests.support.command_line import CommandLine

SECRET = "the secret of root"
SETTINGS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": f'{{"username": "root", "password": "{SECRET}"}}',
}


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setenv("ROCKHOPPER_ACCESS_KEY", "root")
    monkeypatch.setenv("ROCKHOPPER_SECRET_KEY", SECRET)
    async with Broker.temporary(SETTINGS) as made:
        yield made


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("the secret of alice\n")
    return str(path)


async def test_users_are_added_listed_changed_and_removed(
    broker: Broker, shell: CommandLine, secret_file: str
) -> None:
    added = await shell.run("user", "add", "alice", "--super", "--secret-file", secret_file)
    assert added.out == f"alice is a user of broker-a ({broker.address})\n"
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
    for more, said in ((["--secret-file", secret_file], "12 or more"), ([], "--secret-file")):
        done = await shell.run("user", "add", "bob", *more)
        assert done.code == 2
        assert said in done.err
