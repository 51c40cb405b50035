"""MultiDispatch: one record in several queues, those that its properties name.

The message has one record, and a unit of 20 bytes in each light queue that it names. Recovery, the
scrub and repair read the two properties that are written here (protocol/store/light_queues.py), so
one place writes them. It is off until a feature enables it. A client's own value for the message's
offsets is always dropped, because recovery trusts that property.
"""

from collections.abc import Callable, Iterable

from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.protocol.names import TRANSACTION_CHECK_MAX_TIME_TOPIC, TRANSACTION_HALF_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
)
from rockhopper.protocol.store.light_queues import (
    LIGHT_QUEUE_ID,
    SEPARATOR,
    dispatches,
    is_light,
    light_queue_error,
)

# Messages of transactions that are open, or were given up.
_UNDECIDED = frozenset({TRANSACTION_HALF_TOPIC, TRANSACTION_CHECK_MAX_TIME_TOPIC})


class MultiDispatch:
    """The multi-dispatch of one store."""

    def __init__(self, existing: Iterable[str]) -> None:
        """*existing* are the topics that have queues."""
        self.is_enabled = False
        self._known = set(filter(is_light, existing))

    def enable(self) -> None:
        """Put messages into the queues that they name from now on."""
        self.is_enabled = True

    def begin_anew(self, existing: Iterable[str]) -> None:
        """Find out again which queues exist, because others have written to them."""
        self._known = set(filter(is_light, existing))

    @property
    def known_count(self) -> int:
        """The number of light queues."""
        return len(self._known)

    def unknown_among(self, names: Iterable[str]) -> set[str]:
        """Return those of *names* that no message is in yet."""
        return {name for name in names if name not in self._known}

    def forget(self, name: str) -> None:
        """Forget a deleted light queue."""
        self._known.discard(name)

    def place(
        self,
        own: QueueTail,
        properties: dict[str, str],
        tail: Callable[[str, int], QueueTail],
    ) -> tuple[dict[str, str], list[QueueTail]]:
        """Return the properties to store for a message of the queue *own*, and its light queues.

        *tail* returns the tail of a queue.
        """
        properties = dict(properties)
        properties.pop(PROPERTY_INNER_MULTI_QUEUE_OFFSET, None)
        text = properties.get(PROPERTY_INNER_MULTI_DISPATCH, "")
        names = text.split(SEPARATOR)
        if (
            not self.is_enabled
            or own.topic in _UNDECIDED
            or not dispatches(own.topic)
            or any(light_queue_error(name) is not None for name in names)
        ):
            return properties, []
        # By name: a repeated name is one queue.
        tails = {name: tail(name, LIGHT_QUEUE_ID) for name in names}
        self._known.update(tails)
        offsets = [str(tails[name].next_offset) for name in names]
        properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET] = SEPARATOR.join(offsets)
        return properties, [found for found in tails.values() if found is not own]
