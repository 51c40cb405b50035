"""LogHistory: the histories that the commit log went through, so that positions can be compared.

A queue offset names a position in one history of the log. The log can end earlier than it once did:
a store is restored from a backup, a power cut takes what was not flushed, a replica is elected
unclean. Messages that are written afterwards get offsets that other messages had. The broker cannot
tell that from a clean start, so every time it begins to serve it begins an epoch with a random id,
and keeps where the log ended then.

An epoch ends where the first of all later epochs starts: up to there every later history agrees
with it. For example:

    a  starts at 0      messages 0 to 9 of a queue; a backup is taken; messages 10 to 29
    b  starts at 1,200  the backup is served: its log ends behind message 9

A consumer that read up to 30 in *a* goes on at 10, the end of the queue at offset 1,200 of the log.
A consumer that only knows epochs that this store never had (an empty volume) begins at the first
message.

Kept in ``<store>/rockhopper/log-history.json`` (checked_table.py); an entry is

    id: [number, where the commit log ended when the epoch began, time in ms]

Numbers go up. What a later release has behind these three stays as it is. The table is part of the
state of a replica set, so that a new master knows the epochs of the former one. Clients get an id
after it is on disk.
"""

from collections.abc import Iterable
from secrets import token_hex
from typing import NamedTuple

from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.json_table import JsonObject

EPOCHS_MAX = 1000
_ID_BYTES = 8


class CommonPast(NamedTuple):
    """What the history of a reader and that of the log have in common."""

    id: str | None
    """The newest epoch that both know; None without one."""
    end_offset: int | None
    """The commit log offset up to which they agree; None if the reader knows the present epoch."""


class LogHistory(CheckedTable):
    """Epoch id -> what is known of it. Belongs to the event loop."""

    lost = "consumers may read messages again after a restart: the log history is damaged"
    start_offset = 0
    """Where the log ended when this run began to serve; 0 until then."""

    def begin(self, start_offset: int, *, continues: bool = False) -> None:
        """Begin a run, and an epoch; ``saved`` must return before a client gets its id.

        A run *continues* the former one's epoch if nothing can be missing that was shown in it:
        that of a replica which was in sync with the master before it.
        """
        self.start_offset = start_offset
        if continues and self.entries:
            return
        numbers = {entry[0]: name for name, entry in self.entries.items()}
        newest = max(numbers, default=0)
        for number in sorted(numbers)[: len(numbers) - EPOCHS_MAX + 1]:
            self.forget(numbers[number])
        self.set(token_hex(_ID_BYTES), [newest + 1, start_offset, self._now_ms()])

    def ids(self, count: int) -> list[str]:
        """The ids of the newest *count* epochs, newest first."""
        return sorted(self.entries, key=self._number_of, reverse=True)[:count]

    def compare(self, known_ids: Iterable[str]) -> CommonPast:
        """Compare with the epochs of a reader, newest first."""
        for known_id in known_ids:
            if known_id in self.entries:
                number = self._number_of(known_id)
                later = [entry[1] for entry in self.entries.values() if entry[0] > number]
                return CommonPast(known_id, min(later, default=None))
        return CommonPast(None, 0)

    def from_json(self, document: JsonObject) -> None:
        """Take what was kept. Raises ValueError."""
        super().from_json(document)
        for entry in self.entries.values():
            if not isinstance(entry, list) or [type(part) for part in entry[:3]] != [int] * 3:
                raise ValueError("an entry is not a number, an offset and a time")

    def _number_of(self, name: str) -> int:
        return int(self.entries[name][0])
