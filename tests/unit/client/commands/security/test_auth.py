"""`rockhopper auth import`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.app import Broker
from tests.support.command_line import CommandLine

TEXT = """globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
- accessKey: alice
  secretKey: 12345678
  defaultTopicPerm: SUB
  topicPerms:
  - orders=PUB|SUB
"""


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "plain_acl.yml"
    path.write_text(TEXT)
    return str(path)


async def test_accounts_become_users_once(broker: Broker, shell: CommandLine, file: str) -> None:
    dry = await shell.run("auth", "import", file, "--dry-run")
    assert broker.tables.users.users == {}
    done = await shell.run("auth", "import", file)
    assert done.out == dry.out
    assert "alice: user, 3 rules" in done.out
    assert "allow Pub, Sub Topic:orders" in done.out
    assert "allow Sub Topic:*, by default" in done.out
    assert "allow Pub Topic:RMQ_SYS_TRACE_TOPIC" in done.out
    assert "the secret is short" in done.out
    assert "not imported: globalWhiteRemoteAddresses 10.0.0.*" in done.out
    assert broker.tables.users.users["alice"].secret == "12345678"
    assert len(broker.tables.acls.rules["alice"]) == 3
    again = await shell.run("auth", "import", file)
    assert "alice: exists already" in again.out


async def test_a_file_that_is_none_is_said(shell: CommandLine, file: str) -> None:
    Path(file).write_text("accounts: x\n")
    done = await shell.run("auth", "import", file)
    assert done.code == 1
    assert "accounts is not a list" in done.err
