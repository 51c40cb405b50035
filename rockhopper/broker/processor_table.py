"""The table of the requests that a broker serves: request code -> row.

Each class of processors declares the rows of its codes itself (``rows``). The name server has a
table of its own (broker/name_server). A code that is in neither is answered with
REQUEST_CODE_NOT_SUPPORTED.
"""

from collections.abc import Mapping
from typing import Protocol

from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.kernel.processors.auth_admin import AuthAdminProcessors
from rockhopper.broker.kernel.processors.broker_admin import BrokerAdminProcessors
from rockhopper.broker.kernel.processors.client_calls import ClientCallProcessors
from rockhopper.broker.kernel.processors.clients import ClientProcessors, QueueLockProcessors
from rockhopper.broker.kernel.processors.consumption_admin import ConsumptionAdminProcessors
from rockhopper.broker.kernel.processors.groups_admin import GroupAdminProcessors
from rockhopper.broker.kernel.processors.offsets import LogHistoryProcessor, OffsetProcessors
from rockhopper.broker.kernel.processors.pulls import PullProcessor
from rockhopper.broker.kernel.processors.queries import QueryProcessors
from rockhopper.broker.kernel.processors.resets import ResetProcessors
from rockhopper.broker.kernel.processors.send_back import SendBackProcessor
from rockhopper.broker.kernel.processors.sends import RecallProcessor
from rockhopper.broker.kernel.processors.store_admin import StoreAdminProcessors
from rockhopper.broker.kernel.processors.topic_stats import StatsProcessor
from rockhopper.broker.kernel.processors.topics_admin import TopicIdProcessor
from rockhopper.broker.server.remoting.dispatcher import Row


class Processors(Protocol):
    """The processors of related request codes."""

    def rows(self) -> dict[int, Row]:
        """Return each request code with its row."""


def build_table(broker: BrokerCore) -> dict[int, Row]:
    """Return the rows of the kernel and of the features of *broker*."""
    rows: dict[int, Row] = {}
    for processors in _kernel_processors(broker.kernel, broker):
        _extend(rows, processors.rows(), type(processors).__name__)
    for name, part in broker.features.items():
        _extend(rows, part.processors, f"the feature {name}")
    for part in broker.features.values():
        for code, wrap in part.wraps.items():
            if rows[code].wrap is not None:
                raise ValueError(f"two features wrap the code {code}")
            rows[code] = rows[code]._replace(wrap=wrap)
    return rows


def _extend(rows: dict[int, Row], more: Mapping[int, Row], name: str) -> None:
    if taken := sorted(rows.keys() & more.keys()):
        raise ValueError(f"{name} serves the code {taken[0]}, which is another's")
    rows.update(more)


def _kernel_processors(kernel: Kernel, broker: BrokerCore) -> tuple[Processors, ...]:
    """Build the processors of the kernel, each with the parts that it uses, and no more."""
    config, store, topics, groups = (
        kernel.config,
        kernel.store,
        kernel.tables.topics,
        kernel.tables.groups,
    )
    offsets, consumers, producers = kernel.tables.offsets, kernel.consumers, kernel.producers
    stats, clock, listeners = kernel.stats, kernel.clock, kernel.listeners
    return (
        kernel.sends,
        RecallProcessor(config.live, store, kernel.timer_recall, clock.wall_ms),
        SendBackProcessor(store, kernel.send_back),
        PullProcessor(kernel.puller),
        OffsetProcessors(config.live, store, topics, groups, offsets, consumers, kernel.positions),
        QueueLockProcessors(kernel.locks),
        ClientProcessors(
            config,
            topics,
            groups,
            consumers,
            producers,
            stats,
            kernel.puller,
            kernel.announcer,
            clock.steady_ms,
        ),
        QueryProcessors(config.store.live, store, topics),
        kernel.topic_admin,
        GroupAdminProcessors(
            config,
            store,
            topics,
            groups,
            offsets,
            consumers,
            producers,
            stats,
            listeners,
            kernel.retry_owners,
        ),
        ResetProcessors(
            config, store, topics, groups, offsets, consumers, kernel.puller, listeners
        ),
        ConsumptionAdminProcessors(
            config, store, topics, groups, offsets, producers, stats, clock.steady_ms
        ),
        ClientCallProcessors(config, store, topics, groups, consumers),
        TopicIdProcessor(store, topics, kernel.tables.catalog.topic_ids),
        LogHistoryProcessor(store, kernel.tables.catalog.history, kernel.positions),
        BrokerAdminProcessors(
            config,
            store,
            kernel.scheduled.delayed,
            stats,
            clock.wall_ms,
            clock.steady_ms,
            broker,
        ),
        StatsProcessor(store, topics, groups, offsets, consumers, stats, kernel.retry_owners),
        StoreAdminProcessors(
            store, topics, groups, offsets, consumers, kernel.scheduled.timers, clock.wall_ms
        ),
        AuthAdminProcessors(config.auth, kernel.tables.users, kernel.tables.acls),
    )
