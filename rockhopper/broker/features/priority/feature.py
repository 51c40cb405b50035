"""The declaration of priority."""

from rockhopper.broker.feature import FeaturePart, NoState
from rockhopper.broker.features.priority.queue_choice import queue_of_priority
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol.properties import PROPERTY_PRIORITY


class PriorityPart(FeaturePart):
    """Priority in one broker."""

    def __init__(self) -> None:
        self.prepare_send = {PROPERTY_PRIORITY: queue_of_priority}


class PriorityFeature:
    """The priority of a message is the number of its queue."""

    name = "priority"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = ("tests/unit/broker/features/priority",)

    def state(self, layout: StoreLayout, clock: BrokerClock) -> NoState:
        """Return nothing: the queue of a message holds its priority."""
        return NoState()

    def build(self, kernel: Kernel, state: NoState) -> PriorityPart:
        """Return the part that chooses queues."""
        return PriorityPart()
