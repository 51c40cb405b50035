"""The table of the requests that a broker serves: request code -> row.

Each class of processors declares the rows of its codes itself (``rows``). The name server has a
table of its own (broker/nameserver). A code that is in neither is answered with
REQUEST_CODE_NOT_SUPPORTED.
"""

from collections.abc import Mapping
from typing import Protocol

from rockhopper.broker.kernel.parts import ServingParts
from rockhopper.broker.kernel.processors.auth_admin import AuthAdminProcessors
from rockhopper.broker.kernel.processors.broker_admin import BrokerAdminProcessors
from rockhopper.broker.kernel.processors.client_calls import ClientCallProcessors
from rockhopper.broker.kernel.processors.clients import ClientProcessors
from rockhopper.broker.kernel.processors.consumption_admin import ConsumptionAdminProcessors
from rockhopper.broker.kernel.processors.groups_admin import GroupAdminProcessors
from rockhopper.broker.kernel.processors.log_history import LogHistoryProcessor
from rockhopper.broker.kernel.processors.offsets import OffsetProcessors
from rockhopper.broker.kernel.processors.pulls import PullProcessor
from rockhopper.broker.kernel.processors.queries import QueryProcessors
from rockhopper.broker.kernel.processors.queue_locking import QueueLockProcessors
from rockhopper.broker.kernel.processors.recall import RecallProcessor
from rockhopper.broker.kernel.processors.resets import ResetProcessors
from rockhopper.broker.kernel.processors.send_back import SendBackProcessor
from rockhopper.broker.kernel.processors.store_admin import StoreAdminProcessors
from rockhopper.broker.kernel.processors.topic_ids import TopicIdProcessor
from rockhopper.broker.kernel.processors.topic_stats import StatsProcessor
from rockhopper.broker.server.remoting.dispatcher import Row


class Processors(Protocol):
    """The processors of related request codes."""

    def rows(self) -> dict[int, Row]:
        """Return each request code with its row."""


def build_table(broker: ServingParts) -> dict[int, Row]:
    """Return the rows of the kernel and of the features of *broker*."""
    rows: dict[int, Row] = {}
    for processors in _kernel_processors(broker):
        _extend(rows, processors.rows(), type(processors).__name__)
    for name, part in broker.features.items():
        _extend(rows, part.processors, f"the feature {name}")
    for part in broker.features.values():
        for code, wrap in part.wraps.items():
            rows[code] = rows[code]._replace(processor=wrap(rows[code].processor))
    return rows


def _extend(rows: dict[int, Row], more: Mapping[int, Row], name: str) -> None:
    if taken := sorted(rows.keys() & more.keys()):
        raise ValueError(f"{name} serves the code {taken[0]}, which is another's")
    rows.update(more)


def _kernel_processors(broker: ServingParts) -> tuple[Processors, ...]:
    """Build the processors of the kernel, each with the parts that it uses, and no more."""
    config, store, topics, groups = broker.config, broker.store, broker.topics, broker.groups
    offsets, consumers, producers = broker.offsets, broker.consumers, broker.producers
    stats, clock, events = broker.stats, broker.clock, broker.kernel.events
    return (
        broker.kernel.sends,
        RecallProcessor(config.live, store, broker.timer_recall, clock.wall_ms),
        SendBackProcessor(store, broker.send_back),
        PullProcessor(broker.puller),
        OffsetProcessors(config.live, store, topics, groups, offsets, consumers, broker.positions),
        QueueLockProcessors(broker.locks),
        ClientProcessors(
            config,
            topics,
            groups,
            consumers,
            producers,
            stats,
            broker.puller,
            broker,
            clock.steady_ms,
        ),
        QueryProcessors(config.store.live, store, topics),
        broker.kernel.topic_admin,
        GroupAdminProcessors(
            config,
            store,
            topics,
            groups,
            offsets,
            consumers,
            producers,
            stats,
            events,
            broker.retry_owners,
        ),
        ResetProcessors(config, store, topics, groups, offsets, consumers, broker.puller, events),
        ConsumptionAdminProcessors(
            config, store, topics, groups, offsets, producers, stats, clock.steady_ms
        ),
        ClientCallProcessors(config, store, topics, groups, consumers),
        TopicIdProcessor(store, topics, broker.topic_ids),
        LogHistoryProcessor(store, broker.tables.history, broker.positions),
        BrokerAdminProcessors(
            config,
            store,
            broker.delayed,
            stats,
            clock.wall_ms,
            clock.steady_ms,
            broker,
        ),
        StatsProcessor(store, topics, groups, offsets, consumers, stats, broker.retry_owners),
        StoreAdminProcessors(
            store, topics, groups, offsets, consumers, broker.timers, clock.wall_ms
        ),
        AuthAdminProcessors(config.auth, broker.tables.users, broker.tables.acls),
    )
