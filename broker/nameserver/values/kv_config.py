"""KeyValueTable: what operators keep in the name service, in ``config/kvConfig.json``.

RocketMQ: KVConfigManager. Namespace -> key -> value; the namespace ORDER_TOPIC_CONFIG says how
many queues an ordered topic has on which broker (``broker-a:4;broker-b:4``).
"""

from pathlib import Path
from typing import Any

from rockhopper.broker.tables.json_table import JsonObject, JsonTable

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


class KeyValueTable(JsonTable):
    """Settings by namespace and key, all of them text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._values: dict[str, dict[str, str]] = {}

    def to_json(self) -> JsonObject:
        """The content of kvConfig.json."""
        return {
            "configTable": {
                namespace: values.copy() for namespace, values in self._values.copy().items()
            }
        }

    def from_json(self, document: JsonObject) -> None:
        """Take the values of a kvConfig.json."""
        table = document.get("configTable")
        if not isinstance(table, dict):
            raise ValueError("it has no configTable")
        self._values = {
            str(namespace): {str(key): str(value) for key, value in values.items()}
            for namespace, values in table.items()
        }

    def get(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._values.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """All values of a namespace; empty when there is none."""
        return dict(self._values.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value."""
        self._values.setdefault(namespace, {})[key] = value
        self._changed(namespace)

    def clear(self) -> None:
        """Remove everything."""
        if self._values:
            before, self._values = self._values, {}
            self.mark_changed()
            for namespace in before:
                self.on_entry(namespace)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value; none is fine."""
        if self._values.get(namespace, {}).pop(key, None) is not None:
            self._changed(namespace)

    def entry(self, name: str) -> dict[str, str] | None:
        """All values of a namespace."""
        values = self._values.get(name)
        return None if values is None else dict(values)

    def take_entry(self, name: str, value: Any) -> None:
        """Have these values in a namespace and no others."""
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = {str(key): str(text) for key, text in value.items()}
        self._changed(name)

    def _changed(self, namespace: str) -> None:
        self.mark_changed()
        self.save_soon()
        self.on_entry(namespace)
