"""LightQueues: multi-dispatch, from the names that a producer gave to a message's place in each.

One record, and a unit of 20 bytes in each light queue that it names. Whether there are light
queues at all, two settings say: RocketMQ's enableLmq and enableMultiDispatch. What a client claims
its message's numbers to be is dropped in any case, for recovery believes them.
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


class LightQueues:
    """The light queues of one store."""

    def __init__(self, config: StoreConfig, existing: Iterable[str]) -> None:
        """*existing* are the topics that have queues."""
        self.is_enabled = config.light_queues_enabled and config.multi_dispatch_enabled
        self._count_max = config.light_queue_count_max if config.light_queue_quota else None
        self._known = set(filter(is_light, existing))

    def error(self, names: str) -> str | None:
        """Why no message may name the light queues *names*, as a sentence; None if one may."""
        for name in names.split(SEPARATOR) if self.is_enabled else ():
            problem = light_queue_error(name)
            if problem is not None:
                return f"{PROPERTY_INNER_MULTI_DISPATCH}: {problem}"
        return None

    def is_full_for(self, names: str) -> bool:
        """Whether there would be more light queues than are allowed with *names*."""
        if self._count_max is None or not self.is_enabled:
            return False
        new = {name for name in names.split(SEPARATOR) if name not in self._known}
        return bool(new) and len(self._known) + len(new) > self._count_max

    def forget(self, name: str) -> None:
        """It was deleted."""
        self._known.discard(name)

    def place(
        self,
        own: QueueTail,
        properties: dict[str, str],
        tail: Callable[[str, int], QueueTail],
    ) -> tuple[dict[str, str], list[QueueTail]]:
        """The properties to store for a message of the queue *own*, and the light queues to be in.

        *tail* finds the tail of a queue.
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
        # By name: one that is there twice is one queue.
        tails = {name: tail(name, LIGHT_QUEUE_ID) for name in names}
        self._known.update(tails)
        offsets = [str(tails[name].next_offset) for name in names]
        properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET] = SEPARATOR.join(offsets)
        return properties, [found for found in tails.values() if found is not own]
