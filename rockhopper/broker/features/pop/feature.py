"""The declaration of pop."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.features.pop.metrics import pop_families
from rockhopper.broker.features.pop.processors.assignment import AssignmentProcessors
from rockhopper.broker.features.pop.processors.checks import PopChecks
from rockhopper.broker.features.pop.processors.plain_acks import PlainAcks
from rockhopper.broker.features.pop.processors.popping import PopProcessors
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.features.pop.state import PopState
from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout

if TYPE_CHECKING:
    from rockhopper.broker.features.pop.grpc.half import PopGrpc


class PopPart(FeaturePart):
    """Pop consumption in one broker."""

    def __init__(self, kernel: Kernel, state: PopState) -> None:
        self._kernel = kernel
        config, store = kernel.config, kernel.store
        topics, groups = kernel.tables.topics, kernel.tables.groups
        self.service = service = PopService(state, kernel)
        state.replicate(kernel.state)
        kernel.listeners.append(service)
        self._checks = PopChecks(config, store, topics, groups)
        processors = PopProcessors(
            config, service, self._checks, kernel.consumers, kernel.clock.wall_ms
        )
        assignment = AssignmentProcessors(
            topics, groups, kernel.consumers, state.request_modes, kernel.cluster.queues
        )
        self.processors = processors.rows() | assignment.rows()
        self.fast = PlainAcks(service, topics, store)

    def open(self) -> None:
        """Read the journal; blocks. Raises OSError."""
        self.service.open()
        self._kernel.clock.not_before(self.service.lanes.newest_ms)

    def start(self) -> None:
        """Begin to revive."""
        self.service.start()

    def expire(self) -> None:
        """Forget lanes whose group or topic no longer exists."""
        self.service.expire()

    def purge(self) -> None:
        """Forget what every group has popped, and how groups consume."""
        self.service.purge()

    def stop(self) -> None:
        """Revive nothing more, and answer waiting pops."""
        self.service.stop()

    async def close(self) -> None:
        """Settle the copies that are on disk, and close the journal."""
        await self.service.close()

    async def abandon(self) -> None:
        """Close the journal."""
        await self.service.abandon()

    def metrics(self) -> Iterator[Family]:
        """Return the metrics of pop."""
        return pop_families(self.service)

    def used_groups(self) -> Iterable[str]:
        """Return the groups that have popped."""
        return {lane.group for lane in self.service.lanes}

    def open_grpc(self, sessions: Any) -> "PopGrpc":
        """Return the gRPC half, which serves consumers of RocketMQ 5."""
        from rockhopper.broker.features.pop.grpc.half import PopGrpc

        return PopGrpc(self._kernel, self.service, self._checks, sessions)


class PopFeature:
    """Pop consumption: the broker keeps the positions, and redelivers single messages."""

    name = "pop"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = (
        "tests/property/test_pop.py",
        "tests/support/pop_world.py",
        "tests/unit/broker/features/pop",
        # Pages that describe it.
        "tests/unit/docs/operations/test_troubleshooting.py::test_each_message_stands_in_the_code"
        "[a pop timed out before it was served and got nothing: is the client's clock behind?]",
        "tests/unit/docs/operations/test_troubleshooting.py::test_each_message_stands_in_the_code"
        "[popped messages were deleted before they were acknowledged]",
        "tests/unit/docs/site/test_compatibility_page.py::test_each_code_is_served_or_listed",
        "tests/unit/docs/site/test_compatibility_page.py::test_the_page_is_up_to_date",
        "tests/unit/docs/site/test_metrics_page.py::test_the_page_is_up_to_date",
        "tests/unit/docs/test_names_in_prose.py::test_files_of_a_store_are_those_of_the_code",
        "tests/unit/docs/test_names_in_prose.py::test_sentences_in_backticks_are_what_the_code_says",
        "tests/unit/docs/test_settings_in_prose.py::test_names_in_backticks_are_known",
    )

    def state(self, layout: StoreLayout, clock: BrokerClock) -> PopState:
        """Return the request modes and the lanes."""
        return PopState(layout, clock.steady_ms)

    def build(self, kernel: Kernel, state: PopState) -> PopPart:
        """Return the part that serves pop consumers."""
        return PopPart(kernel, state)
