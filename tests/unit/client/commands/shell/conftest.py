"""The file of contexts of a user who has none yet."""

from pathlib import Path

import pytest

from rockhopper.client.commands.shell.contexts import find_contexts_path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return find_contexts_path()
