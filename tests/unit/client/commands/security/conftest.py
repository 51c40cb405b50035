"""A broker with users, asked as root, and the secret of a user to be."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.app import Broker

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
