"""TopicTable: the existing topics, in ``config/topics.json``.

RocketMQ: TopicConfigManager, TopicConfig, TopicAttributes. A TopicConfig is never changed, only
replaced. So the fast path may cache values derived from one as long as ``get`` returns the same
object.
"""

import os
from collections.abc import Callable, Container, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.kernel.tables.topic_attributes import (
    ATTRIBUTE_CLEANUP_POLICY,
    ATTRIBUTE_MESSAGE_TYPE,
    ATTRIBUTE_QUEUE_TYPE,
    CLEANUP_POLICY_COMPACTION,
    MESSAGE_TYPE_PRIORITY,
    QUEUE_TYPE_BATCH,
)
from rockhopper.broker.kernel.tables.topic_mappings import MappingTable, TopicMapping
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.live_settings import AutoCreateTopic
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import route
from rockhopper.protocol.bodies import topics as bodies
from rockhopper.protocol.names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    LMQ_PREFIX,
    OFFSET_MOVED_EVENT_TOPIC,
    RETRY_PREFIX,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
    dlq_topic,
    is_system_topic,
    reply_topic,
    retry_topic,
    topic_error,
)
from rockhopper.protocol.sys_flags import PERM_INHERIT, PERM_READ, PERM_WRITE

log = structlog.get_logger("broker.topics")


SYS_FLAG_UNIT = 1
SYS_FLAG_UNIT_SUBSCRIPTION = 2

SCHEDULE_LEVEL_COUNT = 18

QUEUE_COUNT_MAX = route.QUEUE_COUNT_MAX
# The number of topics created for clients that may still be extended for another master.
CREATED_REMEMBERED_MAX = 10_000
MADE_ON_USE_MAX = 50_000
"""Beyond this number, topics are no longer created on first use, only by an administrator."""
# The number of queues that clients request when their first message creates a topic.
CLIENT_QUEUE_COUNT = 4


class TopicConfig:
    """The settings of one topic. Immutable: ``replace`` creates another."""

    __slots__ = (
        "_text",
        "attributes",
        "filter_type",
        "is_batch",
        "is_prioritised",
        "is_readable",
        "is_to_be_compacted",
        "is_writable",
        "name",
        "order",
        "perm",
        "read_queue_nums",
        "sys_flag",
        "write_queue_nums",
    )

    def __init__(
        self,
        name: str,
        *,
        read_queue_nums: int = 16,
        write_queue_nums: int = 16,
        perm: int = PERM_READ | PERM_WRITE,
        filter_type: str = "SINGLE_TAG",
        sys_flag: int = 0,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._text: fastjson.CachedText | None = None
        self.name = name
        self.read_queue_nums = read_queue_nums
        self.write_queue_nums = write_queue_nums
        self.perm = perm
        self.filter_type = filter_type
        self.sys_flag = sys_flag
        self.order = order
        self.attributes = dict(attributes or {})
        self.is_readable = bool(perm & PERM_READ)
        self.is_writable = bool(perm & PERM_WRITE)
        self.is_batch = self.attributes.get(ATTRIBUTE_QUEUE_TYPE) == QUEUE_TYPE_BATCH
        self.is_to_be_compacted = (
            self.attributes.get(ATTRIBUTE_CLEANUP_POLICY) == CLEANUP_POLICY_COMPACTION
        )
        self.is_prioritised = self.attributes.get(ATTRIBUTE_MESSAGE_TYPE) == MESSAGE_TYPE_PRIORITY

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicConfig) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"TopicConfig({self.to_json()})"

    def to_json(self) -> JsonObject:
        """Return the object for topics.json and bodies."""
        return {
            "attributes": self.attributes,
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    def text(self) -> fastjson.CachedText:
        """Return the object's text in topics.json, cached because each change rewrites the file."""
        if self._text is None:
            self._text = fastjson.format_value(self.to_json(), 2)
        return self._text

    @classmethod
    def from_json(cls, name: str, value: object) -> "TopicConfig":
        """Decode a topic; missing fields get their defaults. Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError(f"topic {name} is not a JSON object")
        attributes = value.get("attributes") or {}
        return cls(
            name,
            read_queue_nums=int(value.get("readQueueNums", 16)),
            write_queue_nums=int(value.get("writeQueueNums", 16)),
            perm=int(value.get("perm", PERM_READ | PERM_WRITE)),
            filter_type=str(value.get("topicFilterType") or "SINGLE_TAG"),
            sys_flag=int(value.get("topicSysFlag", 0)),
            order=value.get("order") is True,
            attributes={str(key): str(text) for key, text in attributes.items()},
        )

    @classmethod
    def from_body(cls, body: bodies.TopicConfig) -> "TopicConfig":
        """Return the topic that a request's body describes."""
        return cls(
            body.topic_name,
            read_queue_nums=body.read_queue_nums,
            write_queue_nums=body.write_queue_nums,
            perm=body.perm,
            filter_type=body.topic_filter_type,
            sys_flag=body.topic_sys_flag,
            order=body.order,
            attributes=body.attributes,
        )


T_co = TypeVar("T_co", covariant=True)


class Implicit(Protocol[T_co]):
    """Topics or groups that a feature serves by their names; no table stores them."""

    def owns(self, name: str) -> bool:
        """Return whether the name is implicit, so that the table must not store it."""

    def find(self, name: str) -> T_co | None:
        """Return the settings of what has this name; None if nothing can have it."""


class CatalogListener:
    """Learns of changed topics and groups, in the event loop; overrides what it needs."""

    __slots__ = ()

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Handle the new settings of a topic, None if deleted; a blank name means all topics."""

    def topic_created(self, topic: TopicConfig) -> None:
        """Handle a topic that was created by a client's send or route query, once it changed."""

    def group_changed(self, name: str) -> None:
        """Handle any change of a group."""


class ImplicitTopics(Implicit[TopicConfig], Protocol):
    """Topics that exist without being created."""

    def name_error(self, name: str) -> str | None:
        """Return why no message may be sent to a topic of this name; None if one may."""


class TopicTable(JsonTable):
    """Topic name -> TopicConfig. Every change is saved soon, and reported to the listeners."""

    without = "topics that have queues are restored, with default settings"

    def __init__(
        self, path: Path, config: BrokerConfig, *, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        super().__init__(path, now_ms=now_ms)
        self.config = config
        self._live = config.live
        self.configs: dict[str, TopicConfig] = {}
        self.get: Callable[[str], TopicConfig | None] = self.configs.get
        """Returns the topic's settings, None if it does not exist. Bound to the dict for speed."""
        self.send_error: Callable[[str], str | None] = topic_error
        """Returns why no message may be sent to a topic of this name; None if one may."""
        self._implicit: list[ImplicitTopics] = []
        self.listeners: list[CatalogListener] = []
        self.mappings: Mapping[str, TopicMapping] = {}
        """The topics with logical queues, by name; a feature may put its own mapping here."""
        self.mapping_table: MappingTable | None = None
        """Where these are kept, if they can be."""
        self._created: set[str] = set()
        self._said_full = False
        self._system_names = _system_names(config)

    def to_json(self) -> JsonObject:
        """Return the content of topics.json."""
        topics = {name: topic.text() for name, topic in self.configs.copy().items()}
        return {"dataVersion": self.version.to_json(), "topicConfigTable": topics}

    def from_json(self, document: JsonObject) -> None:
        """Load the topics of a topics.json."""
        table = document.get("topicConfigTable")
        if not isinstance(table, dict):
            raise ValueError("it has no topicConfigTable")
        configs = {name: TopicConfig.from_json(name, value) for name, value in table.items()}
        self.configs.clear()
        self.configs.update(configs)

    def serve_implicit(self, topics: ImplicitTopics) -> None:
        """Find *topics* by their names from now on, too."""
        self._implicit.append(topics)
        self.get = self._get_or_implicit
        self.send_error = self._find_send_error

    def _get_or_implicit(self, name: str) -> TopicConfig | None:
        topic = self.configs.get(name)
        for implicit in self._implicit if topic is None else ():
            topic = topic or implicit.find(name)
        return topic

    def _find_send_error(self, name: str) -> str | None:
        for implicit in self._implicit:
            if implicit.owns(name):
                return implicit.name_error(name)
        return topic_error(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __len__(self) -> int:
        return len(self.configs)

    def is_system(self, name: str) -> bool:
        """Return whether *name* is a system topic, which users may not change."""
        return name in self._system_names or is_system_topic(name)

    def system_topics(self) -> list[str]:
        """Return the system topics that exist here."""
        return sorted(filter(self.is_system, list(self.configs)))

    def is_batch(self, name: str) -> bool:
        """Return whether the topic's queues are of type BatchCQ."""
        topic = self.configs.get(name)
        return topic is not None and topic.is_batch

    def put(self, topic: TopicConfig) -> bool:
        """Create or replace a topic; return False if it is unchanged, or implicit."""
        if any(implicit.owns(topic.name) for implicit in self._implicit):
            return False
        if self.configs.get(topic.name) == topic:
            return False
        self.configs[topic.name] = topic
        self._changed(topic.name, topic)
        return True

    def delete(self, name: str) -> bool:
        """Delete a topic; return False if there is none."""
        if self.configs.pop(name, None) is None:
            return False
        self._changed(name, None)
        return True

    def entry(self, name: str) -> JsonObject | None:
        """Return a topic's settings in the format of topics.json."""
        topic = self.configs.get(name)
        return None if topic is None else topic.to_json()

    def take_entry(self, name: str, value: Any) -> None:
        """Create, replace or delete a topic. Raises ValueError."""
        if value is None:
            self.delete(name)
        else:
            self.put(TopicConfig.from_json(name, value))

    def _replay(self, name: str, value: Any) -> None:
        if value is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = TopicConfig.from_json(name, value)

    def _changed(self, name: str, topic: TopicConfig | None) -> None:
        self.version.advance(self._now_ms())
        self.mark_changed(name or None)
        self.save_soon()
        if name:
            self.note_entry(name)
        for listener in self.listeners:
            listener.topic_changed(name, topic)

    def touch(self) -> None:
        """Count a change that concerns every topic, such as brokerPermission."""
        self._changed("", None)

    def create_on_send(
        self, name: str, default_topic: str, wanted_queues: int, *, unit_mode: bool = False
    ) -> TopicConfig | None:
        """Return the topic of a message, created like *default_topic* if necessary.

        None if not allowed. The default topic must have the inherit permission; TBW102 has it
        unless autoCreateTopic is off.
        """
        topic = self.get(name)
        if topic is not None:
            return topic
        if self._is_wanted_trace_topic(name):
            return self._create(name, 1)
        pattern = self.configs.get(default_topic)
        if pattern is None or not pattern.perm & PERM_INHERIT or topic_error(name) is not None:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self.creates_on_send:
            return None
        if self._is_full(name):
            return None
        queue_count = max(1, min(wanted_queues, pattern.write_queue_nums))
        perm = pattern.perm & ~PERM_INHERIT
        sys_flag = SYS_FLAG_UNIT if unit_mode else 0
        return self._create_for_client(
            self._create(name, queue_count, perm, pattern.filter_type, sys_flag)
        )

    def create_on_lookup(self, name: str) -> TopicConfig | None:
        """Return the topic of a route query, created if autoCreateTopic=on-lookup; else None."""
        topic = self.configs.get(name)
        if topic is not None:
            return topic
        if self._is_wanted_trace_topic(name):
            return self._create(name, 1)
        if self._live.auto_create_topic is not AutoCreateTopic.ON_LOOKUP:
            return None
        if self.is_system(name) or not may_be_looked_up(name) or self._is_full(name):
            return None
        return self._create_for_client(self._create(name, self._queue_count_for_clients))

    def _is_full(self, name: str) -> bool:
        """Return whether there are too many topics to create one on first use; log this once."""
        if len(self.configs) < MADE_ON_USE_MAX:
            self._said_full = False
            return False
        if not self._said_full:
            self._said_full = True
            log.warning(
                "topics are no longer created on first use: there are too many; delete unused "
                "ones (rockhopper topic delete), or create this one as an administrator",
                topic=name,
                topics=len(self.configs),
            )
        return True

    @property
    def _queue_count_for_clients(self) -> int:
        return min(CLIENT_QUEUE_COUNT, self._live.default_topic_queue_nums)

    def _is_wanted_trace_topic(self, name: str) -> bool:
        """Return whether clients send traces to this topic, as traceOn requests."""
        return self.config.trace_on and name == self.config.trace_topic_name

    def _create_for_client(self, topic: TopicConfig) -> TopicConfig:
        if len(self._created) >= CREATED_REMEMBERED_MAX:
            self._created.clear()
        self._created.add(topic.name)
        for listener in self.listeners:
            listener.topic_created(topic)
        return topic

    def adopt(self, name: str, queue_count: int, perm: int) -> None:
        """Create a topic that another master created for a client, unless autoCreateTopic=off.

        A topic that was just created here for a client is extended to the same number of queues;
        other topics stay unchanged.
        """
        if (
            not self.creates_on_send
            or self.is_system(name)
            or not may_be_looked_up(name)
            or not 0 < queue_count <= QUEUE_COUNT_MAX
        ):
            return
        topic = self.configs.get(name)
        if topic is None:
            if not self._is_full(name):
                self._create(name, queue_count, perm)
        elif name in self._created and topic.write_queue_nums < queue_count:
            self._create(name, queue_count, topic.perm, topic.filter_type)

    @property
    def creates_on_send(self) -> bool:
        """Whether a message to an unknown topic creates it."""
        return self._live.auto_create_topic is not AutoCreateTopic.OFF

    def ensure_retry_topic(
        self, group: str, queue_count: int = 1, *, unit_mode: bool = False
    ) -> TopicConfig:
        """Return ``%RETRY%group``, for failed messages of a group; create it if necessary."""
        name = retry_topic(group)
        topic = self.configs.get(name)
        if topic is None:
            sys_flag = SYS_FLAG_UNIT_SUBSCRIPTION if unit_mode else 0
            topic = self._create(name, max(1, queue_count), sys_flag=sys_flag)
        return topic

    def ensure_dlq_topic(self, group: str) -> TopicConfig:
        """Return ``%DLQ%group``, for messages that failed too often; create it if necessary."""
        name = dlq_topic(group)
        return self.configs.get(name) or self._create(name, 1)

    def _create(
        self,
        name: str,
        queue_count: int,
        perm: int = PERM_READ | PERM_WRITE,
        filter_type: str = "SINGLE_TAG",
        sys_flag: int = 0,
    ) -> TopicConfig:
        topic = TopicConfig(
            name,
            sys_flag=sys_flag,
            read_queue_nums=queue_count,
            write_queue_nums=queue_count,
            perm=perm,
            filter_type=filter_type,
        )
        log.info("topic created", topic=name, queues=queue_count)
        self.put(topic)
        return topic

    def seed_system_topics(self) -> None:
        """Create the missing system topics; TBW102 follows defaultTopicQueueNums."""
        for topic in _system_topics(self.config):
            existing = self.configs.get(topic.name)
            if existing is None or topic.name == AUTO_CREATE_TOPIC:
                self.put(topic)

    def restore_from_queue_directories(self, found: Iterable[tuple[str, int, bool]]) -> list[str]:
        """Restore unknown topics that have queues on disk; return their names.

        *found* is (topic, queue id, is BatchCQ) for each queue directory with a file. The highest
        queue id determines the topic's number of queues. A topic may also be one that clients
        created by their first sends, and that a kill made the table forget. It gets at least the
        number of queues that clients request.
        """
        queue_counts, batch = _count_queues(found)
        restored = []
        for name, queue_count in sorted(queue_counts.items()):
            if name in self.configs or name.startswith(LMQ_PREFIX):
                continue
            if topic_error(name) is not None or queue_count > QUEUE_COUNT_MAX:
                log.warning(
                    "a queue directory belongs to no topic", directory=name, queues=queue_count
                )
                continue
            if self.creates_on_send and name not in batch and may_be_looked_up(name):
                queue_count = max(queue_count, self._queue_count_for_clients)
            self.put(
                TopicConfig(
                    name,
                    read_queue_nums=queue_count,
                    write_queue_nums=queue_count,
                    attributes={ATTRIBUTE_QUEUE_TYPE: QUEUE_TYPE_BATCH} if name in batch else {},
                )
            )
            log.warning("topic restored from its queue directory", topic=name, queues=queue_count)
            restored.append(name)
        return restored


def _count_queues(
    directories: Iterable[tuple[str, int, bool]],
) -> tuple[dict[str, int], set[str]]:
    """Return the number of queues of each topic, and the topics with batch queues."""
    counts: dict[str, int] = {}
    batch: set[str] = set()
    for name, queue_id, is_batch in directories:
        counts[name] = max(counts.get(name, 0), queue_id + 1)
        if is_batch:
            batch.add(name)
    return counts, batch


def may_be_looked_up(name: str) -> bool:
    """Return whether *name* is valid for a topic that is created automatically."""
    derived = name.startswith((RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX))
    return not derived and not is_system_topic(name) and topic_error(name) is None


def queue_directories(
    layout: StoreLayout, known: Container[str] = ()
) -> Iterable[tuple[str, int, bool]]:
    """Yield (topic, queue id, is BatchCQ) for each queue directory of a store with a file.

    Skips *known* topics.
    """
    for parent, is_batch in (
        (layout.consume_queues, False),
        (layout.batch_consume_queues, True),
    ):
        for topic_directory in _directories(parent):
            if topic_directory.name in known:
                continue
            for queue_directory in _directories(topic_directory.path):
                if queue_directory.name.isdecimal() and os.listdir(queue_directory.path):
                    yield topic_directory.name, int(queue_directory.name), is_batch


def _directories(path: Path | str) -> list[os.DirEntry[str]]:
    try:
        entries = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((entry for entry in entries if entry.is_dir()), key=attrgetter("name"))


def _system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics of every broker.

    RocketMQ's BenchmarkTest with its 1024 queues is omitted.
    """
    read_write = PERM_READ | PERM_WRITE
    cluster, broker = config.cluster_name, config.broker_name
    seeds = [
        (SELF_TEST_TOPIC, 1, read_write),
        (cluster, 16, PERM_INHERIT | (read_write if config.cluster_topic_enable else 0)),
        (broker, 1, PERM_INHERIT | (read_write if config.broker_topic_enable else 0)),
        (OFFSET_MOVED_EVENT_TOPIC, 1, read_write),
        (SCHEDULE_TOPIC, SCHEDULE_LEVEL_COUNT, read_write),
        (reply_topic(cluster), 1, read_write),
        (REVIVE_TOPIC_PREFIX + cluster, 8, read_write),
        (f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
        (TRANSACTION_HALF_TOPIC, 1, read_write),
        (TRANSACTION_OP_HALF_TOPIC, 1, read_write),
        (TIMER_TOPIC, 1, read_write),
    ]
    if config.live.auto_create_topic is not AutoCreateTopic.OFF:
        seeds.append(
            (AUTO_CREATE_TOPIC, config.live.default_topic_queue_nums, PERM_INHERIT | read_write)
        )
    if config.trace_topic_enable:
        seeds.append((config.trace_topic_name, 1, read_write))
    return [
        TopicConfig(name, read_queue_nums=count, write_queue_nums=count, perm=perm)
        for name, count, perm in seeds
    ]


def _system_names(config: BrokerConfig) -> frozenset[str]:
    return SYSTEM_TOPICS | {topic.name for topic in _system_topics(config)}
