"""What tests of replica sets share."""

import pytest

from tests.support.held_clock import HeldClock


@pytest.fixture
async def held_clock(monkeypatch: pytest.MonkeyPatch) -> HeldClock:
    """With it requests have all the time they need."""
    return HeldClock(monkeypatch)
