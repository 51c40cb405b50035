"""The declaration of bulk pulls."""

from rockhopper.broker.feature import FeaturePart, NoState
from rockhopper.broker.features.bulk_pull.processors import BulkPullProcessor
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout


class BulkPullPart(FeaturePart):
    """Bulk pulls in one broker."""

    def __init__(self, kernel: Kernel) -> None:
        self.processors = BulkPullProcessor(
            kernel.store,
            kernel.tables.catalog.topic_ids,
            kernel.stats,
            kernel.puller,
            kernel.tables.topics,
        ).rows()


class BulkPullFeature:
    """Reading by the megabyte, for jobs that decode many messages at once."""

    name = "bulk_pull"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = (
        "tests/integration/test_bulk_pull.py",
        "tests/unit/broker/features/bulk_pull",
        # Other pulls name no topic by its id.
        "tests/unit/pipeline/jobs/archiving/iceberg/test_source.py"
        "::test_the_queue_of_a_topic_that_was_created_again_is_not_read",
        # Pages that describe it.
        "tests/unit/docs/site/test_compatibility_page.py::test_the_page_is_up_to_date",
        "tests/unit/docs/site/test_compatibility_page.py::test_the_table_of_ours_is_up_to_date",
    )

    def state(self, layout: StoreLayout, clock: BrokerClock) -> NoState:
        """Return nothing: a pull leaves nothing behind."""
        return NoState()

    def build(self, kernel: Kernel, state: NoState) -> BulkPullPart:
        """Return the part that serves bulk pulls."""
        return BulkPullPart(kernel)
