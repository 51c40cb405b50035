"""SubscriptionGroupTable: the settings of consumer groups, in ``config/subscriptionGroup.json``.

RocketMQ: SubscriptionGroupManager, SubscriptionGroupConfig. The online members are in
consumer_groups.py.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.kernel.tables.topic_attributes import ATTRIBUTE_PRIORITY_FACTOR
from rockhopper.broker.kernel.tables.topics import CatalogListener, Implicit
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol.names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, group_error

log = structlog.get_logger("broker.groups")

# Wire name -> (attribute, default), in the order of the file.
_FIELDS: dict[str, tuple[str, bool | int]] = {
    "brokerId": ("broker_id", 0),
    "consumeBroadcastEnable": ("consume_broadcast_enable", True),
    "consumeEnable": ("consume_enable", True),
    "consumeFromMinEnable": ("consume_from_min_enable", True),
    "consumeMessageOrderly": ("consume_message_orderly", False),
    "consumeTimeoutMinute": ("consume_timeout_minute", 15),
    "groupSysFlag": ("group_sys_flag", 0),
    "notifyConsumerIdsChangedEnable": ("notify_consumer_ids_changed_enable", True),
    "retryMaxTimes": ("retry_max_times", 16),
    "retryQueueNums": ("retry_queue_nums", 1),
    "whichBrokerWhenConsumeSlowly": ("which_broker_when_consume_slowly", 1),
}


MADE_ON_USE_MAX = 20_000
"""Beyond this number, groups are no longer created on first use, only by an administrator."""

FORBIDDEN_READ = 1 << 2
"""RocketMQ's bit in a forbiddenTable: 1 << PermName.INDEX_PERM_READ."""
_FORBIDDEN_READ_BEFORE = 1


class SubscriptionGroup:
    """The settings of one group. Immutable: replace it by another.

    ``others`` contains what RocketMQ stores in the object and this broker only passes on:
    attributes, groupRetryPolicy, subscriptionDataSet and fields of later releases.
    """

    __slots__ = (
        "broker_id",
        "consume_broadcast_enable",
        "consume_enable",
        "consume_from_min_enable",
        "consume_message_orderly",
        "consume_timeout_minute",
        "group_sys_flag",
        "name",
        "notify_consumer_ids_changed_enable",
        "others",
        "retry_max_times",
        "retry_queue_nums",
        "which_broker_when_consume_slowly",
    )

    broker_id: int
    consume_broadcast_enable: bool
    consume_enable: bool
    consume_from_min_enable: bool
    consume_message_orderly: bool
    consume_timeout_minute: int
    group_sys_flag: int
    notify_consumer_ids_changed_enable: bool
    retry_max_times: int
    retry_queue_nums: int
    which_broker_when_consume_slowly: int

    def __init__(self, name: str, **settings: bool | int) -> None:
        self.name = name
        self.others: JsonObject = {"attributes": {}, "groupRetryPolicy": {"type": "CUSTOMIZED"}}
        for attribute, default in _FIELDS.values():
            setattr(self, attribute, settings.pop(attribute, default))
        if settings:
            raise TypeError(f"a group has no setting {', '.join(settings)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubscriptionGroup) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes that RocketMQ's ``+key=value`` can change."""
        found = self.others.get("attributes")
        return dict(found) if isinstance(found, dict) else {}

    @property
    def priority_factor(self) -> int:
        """The percentage of pops of a PRIORITY topic that search the most urgent queue first."""
        text = str(self.attributes.get(ATTRIBUTE_PRIORITY_FACTOR, ""))
        return int(text) if text.isdecimal() else 100

    def to_json(self) -> JsonObject:
        """Return the object for subscriptionGroup.json and bodies."""
        value: JsonObject = {"groupName": self.name, **self.others}
        for wire_name, (attribute, _) in _FIELDS.items():
            value[wire_name] = getattr(self, attribute)
        return dict(sorted(value.items()))

    @classmethod
    def from_json(cls, name: str, value: Any) -> "SubscriptionGroup":
        """Decode a group; missing fields get their defaults. Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError(f"group {name} is not a JSON object")
        group = cls(name)
        for wire_name, field in value.items():
            attribute, default = _FIELDS.get(wire_name, ("", 0))
            if isinstance(default, bool) and attribute:
                setattr(group, attribute, field is True or str(field).lower() == "true")
            elif attribute:
                setattr(group, attribute, int(field))
            elif wire_name != "groupName" and field is not None:
                group.others[wire_name] = field
        return group


class SubscriptionGroupTable(JsonTable):
    """Group name -> SubscriptionGroup, and the topics that a group may not read."""

    without = (
        "groups come back when they consume (autoCreateSubscriptionGroup), with default settings"
    )

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        listeners: Sequence[CatalogListener] = (),
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        super().__init__(path, now_ms=now_ms)
        self.config = config
        self._live = config.live
        self.groups: dict[str, SubscriptionGroup] = {}
        self.get: Callable[[str], SubscriptionGroup | None] = self.groups.get
        """Returns the group's settings, None if it does not exist. Bound to the dict for speed."""
        self._implicit: list[Implicit[SubscriptionGroup]] = []
        self._forbidden: dict[str, dict[str, int]] = {}
        self._made_ms: OrderedDict[str, int] = OrderedDict()
        """Groups that were created on first use since the start, the oldest first."""
        self._is_full = False
        self._listeners = listeners

    def to_json(self) -> JsonObject:
        """Return the content of subscriptionGroup.json."""
        return {
            "dataVersion": self.version.to_json(),
            "forbiddenTable": {
                group: dict(topics) for group, topics in self._forbidden.copy().items()
            },
            "subscriptionGroupTable": {
                name: group.to_json() for name, group in self.groups.copy().items()
            },
        }

    def from_json(self, document: JsonObject) -> None:
        """Load the groups of a subscriptionGroup.json."""
        table = document.get("subscriptionGroupTable")
        if not isinstance(table, dict):
            raise ValueError("it has no subscriptionGroupTable")
        groups = {name: SubscriptionGroup.from_json(name, value) for name, value in table.items()}
        self._forbidden = {
            group: {topic: _forbidden_bits(int(bits)) for topic, bits in topics.items()}
            for group, topics in (document.get("forbiddenTable") or {}).items()
        }
        self.groups.clear()
        self.groups.update(groups)

    def serve_implicit(self, groups: Implicit[SubscriptionGroup]) -> None:
        """Find *groups* by their names from now on, too."""
        self._implicit.append(groups)
        self.get = self._get_or_implicit

    def _get_or_implicit(self, name: str) -> SubscriptionGroup | None:
        group = self.groups.get(name)
        for implicit in self._implicit if group is None else ():
            group = group or implicit.find(name)
        return group

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __len__(self) -> int:
        return len(self.groups)

    def find_or_create(self, name: str) -> SubscriptionGroup | None:
        """Return a client's group, creating it on first use if allowed.

        Return None if it does not exist.
        """
        group = self.get(name)
        if group is not None:
            return group
        allowed = self._live.auto_create_subscription_group or name.startswith(SYSTEM_GROUP_PREFIX)
        if not allowed or group_error(name) is not None:
            return None
        if len(self.groups) >= MADE_ON_USE_MAX and not name.startswith(SYSTEM_GROUP_PREFIX):
            self._note_full(name)
            return None
        group = SubscriptionGroup(name)
        log.info("group created on first use", group=name)
        self.put(group)
        self.note_made(name)
        return group

    def _note_full(self, name: str) -> None:
        if not self._is_full:
            self._is_full = True
            log.warning(
                "groups are no longer created on first use: there are too many; delete unused "
                "ones (rockhopper group delete), or create this one as an administrator",
                group=name,
                groups=len(self.groups),
            )

    def note_made(self, name: str) -> None:
        """Record that a group was created on first use and is not known to be used."""
        self._made_ms.pop(name, None)
        self._made_ms[name] = self._now_ms()

    def take_made_before(self, age_ms: int, count: int) -> list[str]:
        """Remove and return at most *count* groups that were recorded *age_ms* ago or earlier."""
        made_before_ms = self._now_ms() - age_ms
        found: list[str] = []
        for name, made_ms in self._made_ms.items():
            if made_ms > made_before_ms or len(found) == count:
                break
            found.append(name)
        for name in found:
            del self._made_ms[name]
        return [name for name in found if name in self.groups]

    def put(self, group: SubscriptionGroup) -> bool:
        """Create or replace a group; return False if it is unchanged, or implicit."""
        if any(implicit.owns(group.name) for implicit in self._implicit):
            return False
        # An administrator who sets it wants to keep it.
        self._made_ms.pop(group.name, None)
        if self.groups.get(group.name) == group:
            return False
        self.groups[group.name] = group
        self._changed(group.name)
        return True

    def delete(self, name: str) -> bool:
        """Delete a group's settings; return False if there are none."""
        if self.groups.pop(name, None) is None:
            return False
        self._forbidden.pop(name, None)
        self._made_ms.pop(name, None)
        self._is_full = False
        self._changed(name)
        return True

    def entry(self, name: str) -> JsonObject | None:
        """Return a group's settings, if any, and the topics that it may not read."""
        group, forbidden = self.groups.get(name), self._forbidden.get(name)
        if group is None and forbidden is None:
            return None
        settings = None if group is None else group.to_json()
        return {"settings": settings, "forbidden": forbidden or {}}

    def take_entry(self, name: str, value: Any) -> None:
        """Create, replace or delete a group with its forbidden topics. Raises ValueError."""
        self._replay(name, value)
        self._changed(name)

    def _replay(self, name: str, value: Any) -> None:
        settings, forbidden = None, {}
        if value is not None:
            settings = value["settings"]
            forbidden = {str(topic): int(bits) for topic, bits in value["forbidden"].items()}
        group = None if settings is None else SubscriptionGroup.from_json(name, settings)
        self.groups.pop(name, None)
        self._forbidden.pop(name, None)
        if group is not None:
            self.groups[name] = group
        if forbidden:
            self._forbidden[name] = forbidden

    def is_forbidden(self, group: str, topic: str, bit: int = FORBIDDEN_READ) -> bool:
        """Return whether *group* may not read *topic*."""
        return bool(self._forbidden and self._forbidden.get(group, {}).get(topic, 0) & bit)

    def forbid(self, group: str, topic: str, *, readable: bool, bit: int = FORBIDDEN_READ) -> None:
        """Allow or forbid *group* to read *topic*."""
        topics = self._forbidden.setdefault(group, {})
        bits = topics.get(topic, 0) & ~bit if readable else topics.get(topic, 0) | bit
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
            if not topics:
                del self._forbidden[group]
        self._changed(group)

    def _changed(self, name: str) -> None:
        self.version.advance(self._now_ms())
        self.mark_changed(name)
        self.save_soon()
        self.note_entry(name)
        for listener in self._listeners:
            listener.group_changed(name)

    def seed_system_groups(self) -> None:
        """Create the groups that every broker has."""
        for name in sorted(SYSTEM_GROUPS):
            if name not in self.groups:
                self.put(SubscriptionGroup(name))


def _forbidden_bits(bits: int) -> int:
    """Convert a file's bits; Rockhopper 0.1 used 1 for reading, which RocketMQ never sets."""
    return FORBIDDEN_READ if bits == _FORBIDDEN_READ_BEFORE else bits
