"""Delay levels: how long each of them is, and where a delayed message waits.

A message with the property DELAY=n waits in queue n−1 of SCHEDULE_TOPIC_XXXX, with the place it is
for in REAL_TOPIC and REAL_QID.  delayed.py brings it there when its time has come.
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
        """Raises ValueError with a sentence when *text* is not a list such as ``1s 5m 2h``."""
        self.delays_ms = delays_ms(text)

    def change(self, text: str) -> bool:
        """Go by *text* from now on; return whether that is something else. Raises ValueError."""
        before, self.delays_ms = self.delays_ms, delays_ms(text)
        return self.delays_ms != before

    @property
    def level_max(self) -> int:
        """The highest level; a message that asks for more gets this one."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """How long *level*, from 1 on, waits."""
        return self.delays_ms[min(level, self.level_max) - 1]

    def redirect(
        self, topic: str, queue_id: int, properties: dict[str, str], level: int
    ) -> tuple[str, int]:
        """Where a message for *topic* and *queue_id* waits at *level*; sets its *properties*.

        Whatever the sender wrote into REAL_TOPIC and REAL_QID is overwritten.
        """
        level = min(level, self.level_max)
        properties[PROPERTY_DELAY_LEVEL] = str(level)
        properties[PROPERTY_REAL_TOPIC] = topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
        return SCHEDULE_TOPIC, level - 1
