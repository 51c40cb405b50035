"""What a record of the commit log expects of the consume queues and of the index.

Whoever compares the log with what is derived from it, or derives it anew, asks here: dispatch,
recovery, the scrub, `store check`, and the audit of the pipeline.

    record                          units                                     keys
    any                             one in its own queue                      UNIQ_KEY, each of KEYS
    of a batch queue                one, with its first message and count     the same
    in light queues (LMQ)           also one in queue 0 of each               the same
    a half message of old stores    none: the flag PREPARED                   the same
    rolled back                     none                                      none

The tags code of a unit is Java's hash of the TAGS property, 0 without tags; filters compare it. In
SCHEDULE_TOPIC_XXXX it is when the message is due, in ms: store time plus the delay of its level.

Example: a record of 200 bytes at 1,000 with the properties ``UNIQ_KEY``=U and ``TAGS``=ab, message
7 of queue 2 of ``orders``, expects the unit (1000, 200, 3105) as number 7 of orders/2, and one
entry with the hash of ``orders#U`` that points to 1,000.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from rockhopper.protocol.java_hash import index_key_hash, java_string_hash
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
)
from rockhopper.protocol.store.light_queues import LIGHT_QUEUE_ID, light_places
from rockhopper.protocol.store.queue_layout import COMPACTED_OFFSET_NONE
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)

TAGS_CACHED_MAX = 10_000
BATCH_COUNT_MAX = 32_767
_OFFSET_DIGITS_MAX = 18
LIGHT_QUEUES = f"{PROPERTY_INNER_MULTI_DISPATCH}\x01".encode()
"""The properties of a record in light queues contain these bytes; those of others may, too."""
_NAMES = tuple(f"{name}\x01" for name in (PROPERTY_UNIQUE_KEY, PROPERTY_KEYS, PROPERTY_TAGS))
_hashes: dict[str, int] = {}

DelayOf = Callable[[int], int]
"""Returns the delay of a level from 1 on, in ms."""


class Record(NamedTuple):
    """A record at the log offset that it states; all offsets are commit log offsets."""

    offset: int
    size_bytes: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_time_ms: int
    topic: bytes
    properties: bytes

    @property
    def end_offset(self) -> int:
        """Where the next record starts."""
        return self.offset + self.size_bytes


class Place(NamedTuple):
    """The place of a record in a queue: *message_count* messages, from *first_offset* on."""

    topic: str
    queue_id: int
    first_offset: int
    message_count: int


class ExpectedUnit(NamedTuple):
    """A unit that a record expects."""

    place: Place
    log_offset: int
    size_bytes: int
    tags_code: int
    store_time_ms: int
    """0 if unknown, as of a record that was walked over with many others."""

    def fields(self, *, is_batch: bool) -> tuple[int, ...]:
        """Return the fields of the unit, as in protocol/store/queue_layout.py."""
        plain = self.log_offset, self.size_bytes, self.tags_code
        if not is_batch:
            return plain
        _, _, first_offset, count = self.place
        return (*plain, self.store_time_ms, first_offset, count, COMPACTED_OFFSET_NONE, 0)


class Expected(NamedTuple):
    """What a record expects."""

    units: list[ExpectedUnit]
    """The unit in its own queue first, then those in light queues."""
    keys: list[int]
    """The hashes of its index entries, in their order."""


def expected(record: Record, *, is_batch: bool, delay_ms: DelayOf) -> Expected:
    """Return everything that a record expects; *is_batch* as for ``find_places``."""
    units = expect_units(record, is_batch=is_batch, delay_ms=delay_ms)
    return Expected(units, expect_keys(record))


def find_places(record: Record, *, is_batch: bool) -> list[Place]:
    """Return the places of a record: its own queue, then light queues.

    *is_batch* means that its own queue is a batch queue.
    """
    if record.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
        return []
    topic = record.topic.decode("utf-8", "replace")
    places = [Place(topic, record.queue_id, record.queue_offset, 1)]
    if not is_batch and LIGHT_QUEUES not in record.properties:
        return places
    properties = decode_properties(record.properties)
    if is_batch:
        places = [Place(topic, record.queue_id, *batch_range(record.queue_offset, properties))]
    places += (
        Place(name, LIGHT_QUEUE_ID, offset, 1) for name, offset in light_places(topic, properties)
    )
    return places


def expect_units(record: Record, *, is_batch: bool, delay_ms: DelayOf) -> list[ExpectedUnit]:
    """Return the units of a record: in its own queue first, then in light queues."""
    places = find_places(record, is_batch=is_batch)
    if not places:
        return []
    code = tags_code_of(record, delay_ms)
    at, size_bytes, store_time_ms = record.offset, record.size_bytes, record.store_time_ms
    return [ExpectedUnit(place, at, size_bytes, code, store_time_ms) for place in places]


def expect_keys(record: Record) -> list[int]:
    """Return the hashes of a record's index entries, in their order."""
    if record.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK:
        return []
    unique_key, keys, _ = keys_and_tags(record.properties)
    if not (unique_key or keys):
        return []
    topic = record.topic.decode("utf-8", "replace")
    hashes = [index_key_hash(topic, unique_key)] if unique_key else []
    hashes += [index_key_hash(topic, key) for key in keys.split(" ") if key]
    return hashes


def expect_tag_key(record: Record) -> int | None:
    """Return the hash of the entry that RocketMQ from 5.4 on adds for the tags; None if none."""
    if record.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK:
        return None
    tags = keys_and_tags(record.properties).tags
    return index_key_hash(record.topic.decode("utf-8", "replace"), f"T#{tags}") if tags else None


def batch_range(queue_offset: int, properties: Mapping[str, str]) -> tuple[int, int]:
    """Return the offset of a record's first message, and the number of its messages.

    As in RocketMQ the two properties decide, whether or not the record has the flag INNER_BATCH.
    """
    count = properties.get(PROPERTY_INNER_NUM, "")
    base = properties.get(PROPERTY_INNER_BASE, "")
    is_number = base.isdecimal() and len(base) <= _OFFSET_DIGITS_MAX
    if is_number and count.isdecimal() and 0 < int(count) <= BATCH_COUNT_MAX:
        return int(base), int(count)
    return queue_offset, 1


def tags_code_of(record: Record, delay_ms: DelayOf) -> int:
    """Return the tags code of a record's units."""
    if record.topic == _SCHEDULE_TOPIC:
        properties = decode_properties(record.properties)
        return compute_tags_code(SCHEDULE_TOPIC, properties, record.store_time_ms, delay_ms)
    return hash_of_tags(keys_and_tags(record.properties).tags)


def compute_tags_code(
    topic: str, properties: Mapping[str, str], store_time_ms: int, delay_ms: DelayOf
) -> int:
    """Return the tags code of a message with *properties*."""
    if topic == SCHEDULE_TOPIC:
        level = properties.get(PROPERTY_DELAY_LEVEL, "")
        if level.isdecimal() and int(level) > 0:
            return store_time_ms + delay_ms(int(level))
    return hash_of_tags(properties.get(PROPERTY_TAGS))


def hash_of_tags(tags: str | None) -> int:
    """Return the hash that filters compare. Cached, because many messages share few tags."""
    if not tags:
        return 0
    code = _hashes.get(tags)
    if code is None:
        code = java_string_hash(tags)
        if len(_hashes) < TAGS_CACHED_MAX:
            _hashes[tags] = code
    return code


class KeysAndTags(NamedTuple):
    """Keys and tags of a message; empty strings for missing ones."""

    unique_key: str
    keys: str
    tags: str


@lru_cache(maxsize=1)  # The queue and the index ask for the same record in a row.
def keys_and_tags(properties: bytes) -> KeysAndTags:
    """Return keys and tags as ``decode_properties`` would, at a quarter of its cost."""
    text = properties.decode("utf-8", "replace")
    values = []
    for name in _NAMES:
        at = text.rfind(name)
        if at < 0:
            values.append("")
            continue
        start = at + len(name)
        end = text.find("\x02", start)
        value = text[start:] if end < 0 else text[start:end]
        if not value or (at and text[at - 1] != "\x02"):
            return _decoded(text)  # The name may stand inside a value, or twice.
        values.append(value)
    return KeysAndTags._make(values)


def _decoded(text: str) -> KeysAndTags:
    found = decode_properties(text)
    return KeysAndTags(
        found.get(PROPERTY_UNIQUE_KEY, ""),
        found.get(PROPERTY_KEYS, ""),
        found.get(PROPERTY_TAGS, ""),
    )


_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
