"""MessageRequestModeTable: which group pops which topic, in ``config/messageRequestMode.json``.

RocketMQ: MessageRequestModeManager.

    {"messageRequestModeMap": {<topic>: {<group>: {"consumerGroup": …, "mode": "PULL" | "POP",
                                                   "popShareQueueNum": n, "topic": …}}}}
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.protocol.bodies.popping import SetMessageRequestModeRequestBody as RequestMode


class MessageRequestModeTable(JsonTable):
    """(topic, group) -> whether the group's clients pull or pop the topic."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(path, now_ms=now_ms)
        self._modes: dict[tuple[str, str], RequestMode] = {}

    def to_json(self) -> JsonObject:
        """The content of messageRequestMode.json."""
        table: dict[str, dict[str, JsonObject]] = {}
        for (topic, group), mode in self._modes.copy().items():
            table.setdefault(topic, {})[group] = _to_json(mode)
        return {"messageRequestModeMap": table}

    def from_json(self, document: JsonObject) -> None:
        """Take the modes of a messageRequestMode.json."""
        table = document.get("messageRequestModeMap")
        if not isinstance(table, dict):
            raise ValueError("it has no messageRequestModeMap")
        self._modes = {
            (topic, group): RequestMode.from_json(value)
            for topic, groups in table.items()
            for group, value in groups.items()
        }

    def get(self, topic: str, group: str) -> RequestMode | None:
        """Return the mode that was set; None means that the client pulls."""
        return self._modes.get((topic, group))

    def set_mode(self, mode: RequestMode) -> None:
        """Set how a group consumes a topic."""
        self._modes[mode.topic, mode.consumer_group] = mode
        self._note_change(mode.topic, mode.consumer_group)

    def entry(self, name: str) -> JsonObject | None:
        """Return the mode that was set for ``topic@group``."""
        mode = self._modes.get(_split(name))
        return None if mode is None else _to_json(mode)

    def take_entry(self, name: str, value: Any) -> None:
        """Set the mode; do nothing for None."""
        if value is not None:
            self.set_mode(RequestMode.from_json(value))
        elif self._modes.pop(_split(name), None) is not None:
            self._note_change(*_split(name))

    def _note_change(self, topic: str, group: str) -> None:
        self.mark_changed()
        self.save_soon()
        self.note_entry(f"{topic}@{group}")


def _split(name: str) -> tuple[str, str]:
    topic, _, group = name.partition("@")
    return topic, group


def _to_json(mode: RequestMode) -> JsonObject:
    return {
        "consumerGroup": mode.consumer_group,
        "mode": mode.mode,
        "popShareQueueNum": mode.pop_share_queue_num,
        "topic": mode.topic,
    }
