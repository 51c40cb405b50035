"""A CA for the tests of this room."""

from pathlib import Path

import pytest

from tests.support.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA that nobody knows yet."""
    return Authority(tmp_path)
