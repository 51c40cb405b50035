"""Light queues (LMQ): the additional queues that contain a message, and their valid names.

RocketMQ: LmqDispatch, MultiDispatchUtils. A producer names them in ``INNER_MULTI_DISPATCH``,
separated by ``,``. The broker puts the message's offset in each into ``INNER_MULTI_QUEUE_OFFSET``,
in the same order. The consume queue ``<name>/0`` of each gets a unit that points to the single
record. So the two properties are enough to rebuild the queues.
"""

from collections.abc import Mapping

from rockhopper.protocol.names import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX
from rockhopper.protocol.properties import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
)

LIGHT_QUEUE_ID = 0
SEPARATOR = ","
# The limit of a directory name.
NAME_SIZE_BYTES_MAX = 255
_OFFSET_DIGITS_MAX = 18


def is_light(name: str) -> bool:
    """Whether *name*, of a topic or a group, is that of a light queue."""
    return name.startswith(LMQ_PREFIX)


def light_queue_error(name: str) -> str | None:
    """Return why *name* cannot be a light queue, as a sentence; None if it can.

    It may have more characters than a topic, because bridges of other protocols use their own
    names.
    """
    if not is_light(name) or len(name) == len(LMQ_PREFIX):
        return f"{name[:80]!r} does not start with {LMQ_PREFIX} and a name"
    if "/" in name or "\\" in name or not name.isprintable() or "@" in name:
        return f"the light queue {name[:80]!r} contains one of / \\ @, or an unprintable character"
    if len(name.encode("utf-8", "replace")) > NAME_SIZE_BYTES_MAX:
        return f"the light queue '{name[:40]}...' is longer than {NAME_SIZE_BYTES_MAX} bytes"
    return None


def light_name_of(topic: str, lite_topic: str) -> str:
    """Return the light queue of *lite_topic*, a part of a topic of type LITE."""
    return f"{LMQ_PREFIX}${topic}${lite_topic}"


def dispatches(topic: str) -> bool:
    """Whether messages of *topic* go into light queues too; waiting and system ones do not."""
    return topic != SCHEDULE_TOPIC and not topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX))


def light_places(topic: str, properties: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the light queues of a stored message of *topic*, with its offset in each."""
    if PROPERTY_INNER_MULTI_QUEUE_OFFSET not in properties or not dispatches(topic):
        return []
    names = properties.get(PROPERTY_INNER_MULTI_DISPATCH, "").split(SEPARATOR)
    offsets = properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET].split(SEPARATOR)
    if len(names) != len(offsets):
        return []
    found: dict[str, int] = {}
    for name, offset in zip(names, offsets, strict=True):
        is_number = offset.isdecimal() and len(offset) <= _OFFSET_DIGITS_MAX
        if is_number and name != topic and light_queue_error(name) is None:
            found.setdefault(name, int(offset))
    return list(found.items())
