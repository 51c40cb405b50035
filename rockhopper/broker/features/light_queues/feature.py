"""The declaration of light queues."""

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.features.light_queues.sends import LightQueueSends
from rockhopper.broker.features.light_queues.state import LightQueueState
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol.store.light_queues import is_light


class LightQueuePart(FeaturePart):
    """Light queues in one broker."""

    def __init__(self, kernel: Kernel) -> None:
        config, store = kernel.config.store, kernel.store
        if config.light_queues_enabled and config.multi_dispatch_enabled:
            store.staging.multi_dispatch.enable()
        self.prepare_send = LightQueueSends(config, store.staging.multi_dispatch).preparations()

        def has_no_messages(topic: str, queue_id: int) -> bool:
            return is_light(topic) and store.reading.queue_range(topic, queue_id)[1] == 0

        kernel.tables.offsets.ignored.append(has_no_messages)


class LightQueueFeature:
    """Queues that need no topic, and whose messages are stored once, in other queues."""

    name = "light_queues"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = ("tests/unit/broker/features/light_queues",)

    def state(self, layout: StoreLayout, clock: BrokerClock) -> LightQueueState:
        """Return the topics and groups that need not be created."""
        return LightQueueState()

    def build(self, kernel: Kernel, state: LightQueueState) -> LightQueuePart:
        """Return the part that admits messages to light queues."""
        return LightQueuePart(kernel)
