"""The declaration of static topics."""

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.features.static_topics.processors import StaticTopicProcessors
from rockhopper.broker.features.static_topics.state import StaticTopicState
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout


class StaticTopicPart(FeaturePart):
    """Static topics in one broker."""

    def __init__(self, kernel: Kernel, state: StaticTopicState) -> None:
        processors = StaticTopicProcessors(
            kernel.config,
            kernel.store,
            kernel.tables.topics,
            state.table,
            kernel.cluster.brokers,
            kernel.tables.groups,
            kernel.tables.offsets,
            kernel.positions,
            kernel.announcer,
            kernel.topic_admin,
        )
        self.processors = processors.rows()
        self.wraps = processors.wraps()


class StaticTopicFeature:
    """Logical queues whose number stays the same while they move between brokers."""

    name = "static_topics"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = (
        "tests/unit/broker/features/static_topics",
        # Pages that describe it.
        "tests/unit/docs/site/test_compatibility_page.py::test_each_code_is_served_or_listed",
        "tests/unit/docs/site/test_compatibility_page.py::test_the_page_is_up_to_date",
        "tests/unit/docs/test_names_in_prose.py::test_files_of_a_store_are_those_of_the_code",
    )

    def state(self, layout: StoreLayout, clock: BrokerClock) -> StaticTopicState:
        """Return the mappings."""
        return StaticTopicState(layout, clock)

    def build(self, kernel: Kernel, state: StaticTopicState) -> StaticTopicPart:
        """Return the part that serves logical queues."""
        return StaticTopicPart(kernel, state)
