"""The third field of a consume queue entry: the hash of tags, or a delivery time.

Ordinarily it is Java's hash of the TAGS property, 0 without tags; filters compare it. In
SCHEDULE_TOPIC_XXXX it is when the message is due, in ms: store time plus the delay of its level.
"""

from collections.abc import Callable, Mapping

from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.properties import PROPERTY_DELAY_LEVEL, PROPERTY_TAGS

TAGS_CACHED_MAX = 10_000
_hashes: dict[str, int] = {}


def hash_of_tags(tags: str | None) -> int:
    """Return the hash that filters compare. Cached, because many messages share few tags."""
    if not tags:
        return 0
    code = _hashes.get(tags)
    if code is None:
        code = java_string_hash(tags)
        if len(_hashes) < TAGS_CACHED_MAX:
            _hashes[tags] = code
    return code


class TagsCodes:
    """Computes tags codes from properties; *delay_ms* returns the delay of a level from 1 on."""

    def __init__(self, delay_ms: Callable[[int], int]) -> None:
        self._delay_ms = delay_ms

    def compute_code(self, topic: str, properties: Mapping[str, str], store_time_ms: int) -> int:
        """Return the tags code of a message in the log."""
        if topic == SCHEDULE_TOPIC:
            level = properties.get(PROPERTY_DELAY_LEVEL, "")
            if level.isdecimal() and int(level) > 0:
                return store_time_ms + self._delay_ms(int(level))
        return hash_of_tags(properties.get(PROPERTY_TAGS))
