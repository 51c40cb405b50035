"""The properties of a record that dispatch needs, without decoding all of them."""

from typing import NamedTuple

from rockhopper.broker.store.log.log_scan import Record
from rockhopper.protocol.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
)

_NAMES = tuple(f"{name}\x01" for name in (PROPERTY_UNIQUE_KEY, PROPERTY_KEYS, PROPERTY_TAGS))


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
