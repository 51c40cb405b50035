"""The inputs of dispatch besides the records: topic types, delays, deleted topics, tag keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.directory import StoreDirectory
from rockhopper.pipeline.store_source.topics import topic_table
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS, delays_ms
from rockhopper.protocol.store.store_paths import BATCH_CONSUME_QUEUE_DIRECTORY


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """The rules of dispatch; Spark sends them to the workers."""

    batch_topics: frozenset[str] = frozenset()
    known_topics: frozenset[str] | None = None
    """The topics of config/topics.json; None if the file does not exist."""
    delays_ms: tuple[int, ...] = ()
    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    """Topic -> commit log offset; records of the topic before this offset are deleted."""
    has_tag_keys: bool = False
    """Whether the index also holds tags, as in RocketMQ 5.4 and later."""

    def delay_ms(self, level: int) -> int:
        """Return the delay of *level*; levels start at 1."""
        return self.delays_ms[min(level, len(self.delays_ms)) - 1]


def read_dispatch_rules(
    root: Path | None,
    store: StoreDirectory,
    *,
    delay_levels: str = DEFAULT_DELAY_LEVELS,
    batch_topics: frozenset[str] = frozenset(),
    has_tag_keys: bool = False,
) -> DispatchRules:
    """Read the rules of the store in *root*.

    The topics in *batch_topics* have type BatchCQ, whatever the store says.

    Raises:
        PipelineError: *delay_levels* is not a valid messageDelayLevel.
    """
    try:
        delays = delays_ms(delay_levels)
    except ValueError as error:
        raise PipelineError(
            f"the delay levels are not as they have to be: {error}; give what messageDelayLevel "
            "is in broker.conf, such as '1s 5m 2h'"
        ) from None
    configured = None if root is None else topic_table(root)
    found = _batch_topics(root, configured or {})
    return DispatchRules(
        batch_topics.union(found),
        None if configured is None else frozenset(configured),
        delays,
        dict(store.deleted_topics),
        has_tag_keys,
    )


def _batch_topics(root: Path | None, configured: Mapping[str, Any]) -> Iterator[str]:
    """Yield the topics that have batch queues, or are configured to have them."""
    if root is not None and (root / BATCH_CONSUME_QUEUE_DIRECTORY).is_dir():
        yield from (entry.name for entry in (root / BATCH_CONSUME_QUEUE_DIRECTORY).iterdir())
    for topic, table in configured.items():
        attributes = table.get("attributes") if isinstance(table, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            yield topic
