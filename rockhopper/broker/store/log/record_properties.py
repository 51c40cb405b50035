"""The properties of a record that dispatch needs: its keys, its tags, and the code of the tags.

``keys_and_tags`` reads them without decoding all properties. The tags code is the third field of a
consume queue entry. Ordinarily it is Java's hash of the TAGS property, 0 without tags; filters
compare it. In SCHEDULE_TOPIC_XXXX it is when the message is due, in ms: store time plus the delay
of its level.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rockhopper.broker.store.log.log_scan import Record
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
)

_NAMES = tuple(f"{name}\x01" for name in (PROPERTY_UNIQUE_KEY, PROPERTY_KEYS, PROPERTY_TAGS))
TAGS_CACHED_MAX = 10_000
_hashes: dict[str, int] = {}


class KeysAndTags(NamedTuple):
    """Keys and tags of a message; empty strings for missing ones."""

    unique_key: str
    keys: str
    tags: str


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


class KeysAndTagsReader:
    """``keys_and_tags`` with a cache of one record, which two callers need in a row."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._found = KeysAndTags("", "", "")

    def read(self, record: Record) -> KeysAndTags:
        """Return the keys and tags of *record*."""
        if record is not self._record:
            self._found = keys_and_tags(record.properties)
            self._record = record
        return self._found


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


class TagsCodes:
    """Computes tags codes from properties; *delay_ms* returns the delay of a level from 1 on."""

    def __init__(self, delay_ms: Callable[[int], int]) -> None:
        self._delay_ms = delay_ms

    def compute_code(self, topic: str, properties: Mapping[str, str], store_time_ms: int) -> int:
        """Return the tags code of a message in the log."""
        if topic == SCHEDULE_TOPIC:
            level = properties.get(PROPERTY_DELAY_LEVEL, "")
            if level.isdecimal() and int(level) > 0:
                return store_time_ms + self._delay_ms(int(level))
        return hash_of_tags(properties.get(PROPERTY_TAGS))
