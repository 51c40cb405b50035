"""Redirects a committed message that its producer wants delivered later."""

from collections.abc import Callable

from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.store.put import Redirect
from rockhopper.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rockhopper.protocol.properties import PROPERTY_DELAY_LEVEL, parse_whole_number

# The topics in which a committed message may wait instead of its own topic.
WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)


def build_delay_redirect(
    levels: DelayLevels, timers: Timers, now_ms: Callable[[], int]
) -> Redirect:
    """Return a function that redirects messages with a delay to their waiting topic."""

    def redirect(topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        level = parse_whole_number(properties.get(PROPERTY_DELAY_LEVEL))
        if level > 0:
            return levels.redirect(topic, queue_id, properties, level)
        return timers.redirect_committed(topic, queue_id, properties, now_ms())

    return redirect
