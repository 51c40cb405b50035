"""Delay levels: their delays, and where a delayed message waits.

A message with the property DELAY=n waits in queue n−1 of SCHEDULE_TOPIC_XXXX, with its target in
REAL_TOPIC and REAL_QID. delayed.py delivers it there when it is due.
"""

from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
)
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS, delays_ms


class DelayLevels:
    """The delays of the levels 1, 2, …, from RocketMQ's setting messageDelayLevel."""

    def __init__(self, text: str = DEFAULT_DELAY_LEVELS) -> None:
        """Raises ValueError with a sentence if *text* is not a list such as ``1s 5m 2h``."""
        self.delays_ms = delays_ms(text)

    def change(self, text: str) -> bool:
        """Use *text* from now on; return whether it differs. Raises ValueError."""
        before, self.delays_ms = self.delays_ms, delays_ms(text)
        return self.delays_ms != before

    @property
    def level_max(self) -> int:
        """The highest level; a message with a higher one gets this one."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return the delay of *level*, from 1 on, in ms."""
        return self.delays_ms[min(level, self.level_max) - 1]

    def redirect(
        self, topic: str, queue_id: int, properties: dict[str, str], level: int
    ) -> tuple[str, int]:
        """Return the queue in which a message for *topic* waits at *level*; set its *properties*.

        The sender's values of REAL_TOPIC and REAL_QID are overwritten.
        """
        level = min(level, self.level_max)
        properties[PROPERTY_DELAY_LEVEL] = str(level)
        properties[PROPERTY_REAL_TOPIC] = topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
        return SCHEDULE_TOPIC, level - 1
