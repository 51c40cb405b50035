"""LogHistory: the past epochs of the commit log, so that positions can be compared.

A queue offset names a position in one history of the log. The log may end earlier than before:
after a restore from a backup, a power cut that took unflushed data, or an unclean election. Later
messages then get offsets that other messages had. The broker cannot distinguish this from a clean
start. So each time it starts to serve, it begins an epoch with a random id, and stores the end of
the log at that moment.

An epoch ends where the first of all later epochs starts: every later history agrees with it up to
there. For example:

    a  starts at 0      messages 0 to 9 of a queue; a backup is taken; messages 10 to 29
    b  starts at 1,200  the backup is served: its log ends behind message 9

A consumer that read up to 30 in *a* continues at 10, the end of the queue at offset 1,200 of the
log. A consumer that only knows epochs that this store never had (an empty volume) starts at the
first message.

The file is ``<store>/rockhopper/log-history.json`` (checked_table.py); an entry is

    id: [number, where the commit log ended when the epoch began, time in ms]

Numbers increase. Further values in an entry, from a later release, are preserved. The table is part
of a replica set's state, so that a new master knows the epochs of the former one. Clients receive
an id only after it is on disk.
"""

from collections.abc import Iterable
from secrets import token_hex
from typing import NamedTuple

from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.json_table import JsonObject

EPOCHS_MAX = 1000
_ID_BYTES = 8


class CommonPast(NamedTuple):
    """The common part of a reader's history and that of the log."""

    id: str | None
    """The newest epoch that both know; None if there is none."""
    end_offset: int | None
    """The commit log offset up to which they agree; None if the reader knows the present epoch."""


class LogHistory(CheckedTable):
    """Epoch id -> its data. Belongs to the event loop."""

    lost = "consumers may read messages again after a restart: the log history is damaged"
    start_offset = 0
    """The end of the log when this run started to serve; 0 until then."""

    def start_run(self, start_offset: int, *, continues: bool = False) -> None:
        """Begin a run and an epoch; ``saved`` must return before a client receives its id.

        A run *continues* the epoch of the former run if every message that consumers saw in it is
        still there. This is so for a replica that was in sync with the previous master.
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
        """Return the ids of the newest *count* epochs, newest first."""
        return sorted(self.entries, key=self._number_of, reverse=True)[:count]

    def compare(self, known_ids: Iterable[str]) -> CommonPast:
        """Compare the history with a reader's epochs, newest first."""
        for known_id in known_ids:
            if known_id in self.entries:
                number = self._number_of(known_id)
                later = [entry[1] for entry in self.entries.values() if entry[0] > number]
                return CommonPast(known_id, min(later, default=None))
        return CommonPast(None, 0)

    def from_json(self, document: JsonObject) -> None:
        """Load a stored document. Raises ValueError."""
        super().from_json(document)
        for entry in self.entries.values():
            if not isinstance(entry, list) or [type(part) for part in entry[:3]] != [int] * 3:
                raise ValueError("an entry is not a number, an offset and a time")

    def _number_of(self, name: str) -> int:
        return int(self.entries[name][0])
