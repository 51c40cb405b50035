"""Timers in a test's own time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.timer_rig import TimerRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    made = TimerRig(tmp_path / "store")
    yield made
    made.close()
