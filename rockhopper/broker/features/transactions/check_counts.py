"""CheckCounts: how often the producer of each open half message was asked.

Kept in ``rockhopper/transactions.json`` of the store:

    {"checkTimes": {<half queue offset>: <checks>, …}, "dataVersion": {…}}

RocketMQ appends a half message to its queue again at each check, to store this number. Here a crash
loses the counts of the last seconds, and these checks are repeated.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.broker.store.files.errors import CorruptFileError

log = structlog.get_logger("broker.transactions")


class CheckCounts(JsonTable):
    """Half queue offset -> number of checks; only half messages that were checked."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(path, now_ms=now_ms)
        self._counts: dict[int, int] = {}

    def to_json(self) -> JsonObject:
        """The content of transactions.json."""
        return {"checkTimes": dict(self._counts), "dataVersion": self.version.to_json()}

    def from_json(self, document: JsonObject) -> None:
        """Apply the counts of a transactions.json."""
        counts = document.get("checkTimes")
        if not isinstance(counts, dict):
            raise ValueError("it has no checkTimes")
        self._counts = {int(offset): int(count) for offset, count in counts.items()}

    def load(self) -> bool:
        """Load the counts; without a readable file, counting starts at 0. Raises OSError."""
        try:
            return super().load()
        except CorruptFileError as error:
            log.warning("transaction check counts restart at 0", reason=str(error))
            return False

    def get(self, offset: int) -> int:
        """Return the number of checks of the half message at *offset*."""
        return self._counts.get(offset, 0)

    def record_count(self, offset: int, count: int) -> None:
        """Record how often its producer was asked."""
        self._counts[offset] = count
        self._note_change(offset)

    def forget(self, offset: int) -> None:
        """Drop the counts of ended transactions."""
        if self._counts.pop(offset, None) is not None:
            self._note_change(offset)

    def entry(self, name: str) -> int | None:
        """Return the number of checks by the queue offset of the half message."""
        return self._counts.get(int(name))

    def take_entry(self, name: str, value: object) -> None:
        """Record the counts, or drop them."""
        if isinstance(value, int):
            self.record_count(int(name), value)
        else:
            self.forget(int(name))

    def _note_change(self, offset: int) -> None:
        self.mark_changed()
        self.note_entry(str(offset))

    def keep_only(self, offsets: set[int]) -> None:
        """Drop all other counts."""
        for offset in self._counts.keys() - offsets:
            self.forget(offset)
