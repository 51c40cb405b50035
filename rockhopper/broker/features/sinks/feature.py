"""The declaration of sinks."""

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.features.sinks.appender import BatchAppender
from rockhopper.broker.features.sinks.processors import SinkProcessors
from rockhopper.broker.features.sinks.publisher import SinkPublisher
from rockhopper.broker.features.sinks.state import SinksState
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol.message_ids import UniqueIds


class SinksPart(FeaturePart):
    """Sinks in one broker."""

    def __init__(self, kernel: Kernel, state: SinksState) -> None:
        config, store, topics, clock = (
            kernel.config,
            kernel.store,
            kernel.tables.topics,
            kernel.clock,
        )
        self.publisher = SinkPublisher(
            state,
            store,
            BatchAppender(
                store,
                topics,
                kernel.stats,
                kernel.scheduled.redirect,
                UniqueIds(kernel.store_host[:-4], clock.wall_ms),
                store_host=kernel.store_host,
                suffix=config.added_properties,
            ),
            kernel.state,
            staged_bytes_max=config.sink_staged_bytes_max,
            expire_ms=config.sink_staged_expire_ms,
            now_ms=clock.steady_ms,
            passed_ms=clock.passed_ms,
        )
        topics.listeners.append(self.publisher)
        self.processors = SinkProcessors(
            config, store, topics, kernel.scheduled.timers, self.publisher, clock.wall_ms
        ).rows()

    async def open(self) -> None:
        """Finish the batch that an earlier process did not. Raises StoreError, OSError."""
        await self.publisher.open()

    def expire(self) -> None:
        """Forget parts that were not published in time."""
        self.publisher.expire()

    def purge(self) -> None:
        """Forget every sink."""
        self.publisher.purge()

    async def close(self) -> None:
        """Stop publishing."""
        await self.publisher.close()


class SinkFeature:
    """Batches of messages that become visible whole and once."""

    name = "sinks"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = (
        "tests/crash/test_sinks_survive.py",
        "tests/integration/spark/test_spark_sink_exactly_once.py",
        "tests/integration/test_sinks.py",
        "tests/support/sink_rig.py",
        "tests/unit/broker/features/sinks",
        # Jobs that write exactly once.
        "tests/integration/spark/test_bad_rows.py",
        "tests/integration/spark/test_spark_sink.py",
        "tests/integration/test_archive_and_replay.py",
        "tests/integration/test_brokers_away.py::test_a_replay_of_such_an_archive_says_so",
        "tests/unit/chaos/test_reading.py",
        # Pages that describe it.
        "tests/test_recipes.py::test_everything_that_the_architecture_names_exists",
        "tests/test_recipes.py::test_each_file_and_name_of_a_recipe_exists[a feature]",
        "tests/test_recipes.py::test_paths_that_pages_name_exist[CONTRIBUTING.md]",
        "tests/test_recipes.py::test_paths_that_pages_name_exist[docs/spark.md]",
        "tests/unit/docs/site/test_compatibility_page.py::test_the_page_is_up_to_date",
        "tests/unit/docs/site/test_compatibility_page.py::test_the_table_of_ours_is_up_to_date",
        "tests/unit/docs/test_names_in_prose.py::test_a_file_of_a_store_is_looked_for_in_its_folder",
        "tests/unit/docs/test_names_in_prose.py::test_files_of_a_store_are_those_of_the_code",
        "tests/unit/docs/test_names_in_prose.py::test_files_of_the_repository_are_there",
    )

    def state(self, layout: StoreLayout, clock: BrokerClock) -> SinksState:
        """Return the tables and files of sinks."""
        return SinksState(layout, clock)

    def build(self, kernel: Kernel, state: SinksState) -> SinksPart:
        """Return the part that serves sinks."""
        return SinksPart(kernel, state)
