"""Topics with mapped queues: the interface through which the kernel publishes their mappings.

A mapped topic has logical queues, which a feature serves (features/static_topics). The kernel only
shows the mappings: in routes, in registrations, and to RocketMQ's tools and slaves.
"""

from typing import Any, Protocol

from rockhopper.broker.kernel.tables.json_table import JsonObject, TableVersion


class TopicMapping(Protocol):
    """How the queues of one topic are mapped."""

    def info(self) -> JsonObject:
        """Return the form for routes and registrations."""

    def to_json(self) -> JsonObject:
        """Return all of it, as in RocketMQ's files and bodies."""


class MappingTable(Protocol):
    """Where the mappings are kept."""

    version: TableVersion

    def put_json(self, value: Any) -> None:
        """Put a mapping of a RocketMQ master. Raises ValueError: it makes no sense."""
