"""A store for audits to look at."""

from pathlib import Path

import pytest

from tests.support.derived_stores import write_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """What our broker wrote: 200 messages."""
    return write_store(tmp_path / "store")
