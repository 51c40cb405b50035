"""KeyValueTable: the operators' values in a name server, in ``config/kvConfig.json``.

RocketMQ: KVConfigManager. It maps namespace and key to a value. The namespace ORDER_TOPIC_CONFIG
defines how many queues an ordered topic has on which broker (``broker-a:4;broker-b:4``).
"""

from pathlib import Path
from typing import Any

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.users.errors import Refusal

log = structlog.get_logger("broker.nameserver")

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
NAME_LENGTH_MAX = 255
VALUE_LENGTH_MAX = 64 << 10
VALUES_MAX = 10_000
TOTAL_LENGTH_MAX = 4 << 20
"""The total length of all names and values; each change writes the whole file."""


class KeyValueTable(JsonTable):
    """Text settings by namespace and key."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._values: dict[str, dict[str, str]] = {}
        self._count = 0
        self._length = 0

    def to_json(self) -> JsonObject:
        """Return the content of kvConfig.json."""
        return {
            "configTable": {
                namespace: values.copy() for namespace, values in self._values.copy().items()
            }
        }

    def from_json(self, document: JsonObject) -> None:
        """Load the values of a kvConfig.json."""
        table = document.get("configTable")
        if not isinstance(table, dict):
            raise ValueError("it has no configTable")
        self._values = {
            str(namespace): {str(key): str(value) for key, value in values.items()}
            for namespace, values in table.items()
        }
        self._count = self._length = 0
        for values in self._values.values():
            self._count_in(values)

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, or None."""
        return self._values.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace; empty if there are none."""
        return dict(self._values.get(namespace, {}))

    def set_value(self, namespace: str, key: str, value: str) -> None:
        """Set one value.

        Raises:
            Refusal: the name or value is too long, or a limit of the table is reached.
        """
        before = self._values.get(namespace, {}).get(key)
        if before == value:
            return
        reason = self._lack_of_room(namespace, key, value, before)
        if reason is not None:
            log.warning("value refused", namespace=namespace[:NAME_LENGTH_MAX], reason=reason)
            raise Refusal(reason)
        values = self._values.setdefault(namespace, {})
        values[key] = value
        self._count += before is None
        self._length += len(value) - len(before) if before is not None else len(key) + len(value)
        self._changed(namespace)

    def _lack_of_room(self, namespace: str, key: str, value: str, before: str | None) -> str | None:
        if max(len(namespace), len(key)) > NAME_LENGTH_MAX:
            return f"a namespace and a key have at most {NAME_LENGTH_MAX} characters"
        if len(value) > VALUE_LENGTH_MAX:
            return f"a value has {len(value)} characters; at most {VALUE_LENGTH_MAX} are allowed"
        if before is None and self._count >= VALUES_MAX:
            return f"{VALUES_MAX} values are stored, which is the most: delete some"
        more = len(value) - len(before) if before is not None else len(key) + len(value)
        if more > 0 and self._length + more > TOTAL_LENGTH_MAX:
            return (
                f"all values and keys together have at most {TOTAL_LENGTH_MAX} characters: "
                "delete some"
            )
        return None

    def clear(self) -> None:
        """Remove everything."""
        if self._values:
            before, self._values = self._values, {}
            self._count = self._length = 0
            self.mark_changed()
            for namespace in before:
                self.note_entry(namespace)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if it exists."""
        values = self._values.get(namespace, {})
        value = values.pop(key, None)
        if value is None:
            return
        self._count -= 1
        self._length -= len(key) + len(value)
        if not values:
            del self._values[namespace]
        self._changed(namespace)

    def entry(self, name: str) -> dict[str, str] | None:
        """Return all values of a namespace, or None."""
        values = self._values.get(name)
        return None if values is None else dict(values)

    def take_entry(self, name: str, value: Any) -> None:
        """Replace all values of a namespace."""
        values = {str(key): str(text) for key, text in (value or {}).items()}
        self._count_out(self._values.pop(name, {}))
        if values:
            self._values[name] = values
            self._count_in(values)
        self._changed(name)

    def _changed(self, namespace: str) -> None:
        self.mark_changed()
        self.save_soon()
        self.note_entry(namespace)

    def _count_in(self, values: dict[str, str]) -> None:
        self._count += len(values)
        self._length += _length_of(values)

    def _count_out(self, values: dict[str, str]) -> None:
        self._count -= len(values)
        self._length -= _length_of(values)


def _length_of(values: dict[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in values.items())
