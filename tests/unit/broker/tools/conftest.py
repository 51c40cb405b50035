from pathlib import Path

import pytest

from tests.support import tool_stores


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 60 messages that was stopped cleanly."""
    return tool_stores.write(tmp_path / "store")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Its broker.conf."""
    path = tmp_path / "broker.conf"
    path.write_text(tool_stores.CONFIG_TEXT)
    return path
