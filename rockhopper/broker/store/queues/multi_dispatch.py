"""MultiDispatch: multi-dispatch of a message to the light queues that its producer names.

The message has one record, and a unit of 20 bytes in each light queue that it names. RocketMQ's
settings enableLmq and enableMultiDispatch turn light queues on. A client's own value for the
message's offsets is always dropped, because recovery trusts that property.
"""

from collections.abc import Callable, Iterable

from rockhopper.broker.settings.store_config import StoreConfig
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
    """The light queues of one store."""

    def __init__(self, config: StoreConfig, existing: Iterable[str]) -> None:
        """*existing* are the topics that have queues."""
        self.is_enabled = config.light_queues_enabled and config.multi_dispatch_enabled
        self._count_max = config.light_queue_count_max if config.light_queue_quota else None
        self._known = set(filter(is_light, existing))

    def error(self, names: str) -> str | None:
        """Return the reason why no message may name the light queues *names*; None if one may."""
        for name in names.split(SEPARATOR) if self.is_enabled else ():
            problem = light_queue_error(name)
            if problem is not None:
                return f"{PROPERTY_INNER_MULTI_DISPATCH}: {problem}"
        return None

    def is_full_for(self, names: str) -> bool:
        """Return whether adding *names* would exceed the allowed number of light queues."""
        if self._count_max is None or not self.is_enabled:
            return False
        new = {name for name in names.split(SEPARATOR) if name not in self._known}
        return bool(new) and len(self._known) + len(new) > self._count_max

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
        if (
            not text
            or not self.is_enabled
            or own.topic in _UNDECIDED
            or not dispatches(own.topic)
            or self.error(text) is not None
        ):
            return properties, []
        names = text.split(SEPARATOR)
        # By name: a repeated name is one queue.
        tails = {name: tail(name, LIGHT_QUEUE_ID) for name in names}
        self._known.update(tails)
        offsets = [str(tails[name].next_offset) for name in names]
        properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET] = SEPARATOR.join(offsets)
        return properties, [found for found in tails.values() if found is not own]
