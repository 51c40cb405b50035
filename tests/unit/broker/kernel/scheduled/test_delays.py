"""Where a committed message goes: by level, by time, or straight on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.scheduled.delays import WAITING_TOPICS, build_delay_redirect
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.store.put import Redirect
from tests.support.timer_rig import START_MS, TimerRig


@pytest.fixture
def redirect(tmp_path: Path) -> Iterator[Redirect]:
    rig = TimerRig(tmp_path / "store")
    rig.start()
    yield build_delay_redirect(DelayLevels(), rig.broker.kernel.scheduled.timers, rig.clock)
    rig.close()


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        ({}, ("orders", 1)),
        ({"DELAY": "0"}, ("orders", 1)),
        ({"DELAY": "x"}, ("orders", 1)),
        ({"DELAY": "1"}, ("SCHEDULE_TOPIC_XXXX", 0)),
        ({"DELAY": "18"}, ("SCHEDULE_TOPIC_XXXX", 17)),
        ({"DELAY": "2", "TIMER_DELAY_SEC": "5"}, ("SCHEDULE_TOPIC_XXXX", 1)),
        ({"TIMER_DELAY_SEC": "5"}, ("rmq_sys_wheel_timer", 0)),
        ({"TIMER_DELIVER_MS": str(START_MS - 1)}, ("orders", 1)),
    ],
)
def test_a_message_waits_where_its_properties_say(
    redirect: Redirect, properties: dict[str, str], place: tuple[str, int]
) -> None:
    kept = dict(properties)
    assert redirect("orders", 1, kept) == place
    if place[0] in WAITING_TOPICS:
        assert (kept["REAL_TOPIC"], kept["REAL_QID"]) == ("orders", "1")
    else:
        assert "REAL_TOPIC" not in kept
