"""LightQueueSends: admit messages to the light queues that their producers name."""

from rockhopper.broker.kernel.send.sender import PrepareSend
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.store.staging import MultiDispatch
from rockhopper.broker.users.errors import IllegalMessage, Refusal
from rockhopper.protocol.properties import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_LITE_TOPIC
from rockhopper.protocol.store.light_queues import SEPARATOR, light_name_of, light_queue_error


class LightQueueSends:
    """Checks the light queues that messages name, and how many there are."""

    def __init__(self, config: StoreConfig, multi_dispatch: MultiDispatch) -> None:
        self._multi_dispatch = multi_dispatch
        self._count_max = config.light_queue_count_max if config.light_queue_quota else None

    def preparations(self) -> dict[str, PrepareSend]:
        """Return property -> the function that prepares messages with it, in order."""
        found: dict[str, PrepareSend] = {PROPERTY_LITE_TOPIC: _name_queue}
        if self._multi_dispatch.is_enabled:
            found[PROPERTY_INNER_MULTI_DISPATCH] = self._check
        return found

    def _check(self, properties: dict[str, str], topic: TopicConfig, queue_id: int) -> int:
        """Raise a Refusal if a name is invalid, or there would be too many light queues."""
        names = properties[PROPERTY_INNER_MULTI_DISPATCH].split(SEPARATOR)
        for name in names:
            problem = light_queue_error(name)
            if problem is not None:
                raise IllegalMessage(f"{PROPERTY_INNER_MULTI_DISPATCH}: {problem}")
        if self._count_max is None:
            return queue_id
        new = self._multi_dispatch.unknown_among(names)
        if new and self._multi_dispatch.known_count + len(new) > self._count_max:
            raise Refusal(
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded: "
                "maxLmqConsumeQueueNum allows no more"
            )
        return queue_id


def _name_queue(properties: dict[str, str], topic: TopicConfig, queue_id: int) -> int:
    """Name the light queue of a part of a topic of type LITE."""
    lite_topic = properties[PROPERTY_LITE_TOPIC]
    properties[PROPERTY_INNER_MULTI_DISPATCH] = light_name_of(topic.name, lite_topic)
    return queue_id
