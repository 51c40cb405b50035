"""The journal of pop consumption: what must be known again after a crash of the process.

Files ``<store>/rockhopper/pop/<20-digit number>`` of records (protocol/store/note_records.py),
whose kinds stand in lanes.py. Records are appended with one write(2) for each request and never
synced on the way: a crash of the process loses nothing, a power cut the newest ones, and then
messages repeat (the committed offset of a group is never beyond its oldest message that is not
settled).

Nothing counts behind a record that is lost: what follows it could say that messages were handed out
of which nobody knows any more whether they were settled. They come again instead.

To get rid of what has become obsolete, the owner begins another file (``rotate``), writes all that
still counts into it while new records go there too, and has the older files deleted
(``forget_older``) when the new one is on disk.
"""

from pathlib import Path

from rockhopper.broker.store.files.record_journal import RecordJournal


class PopJournal(RecordJournal):
    """The files. No file exists until the first record is written."""

    def __init__(self, directory: Path, quarantine: Path) -> None:
        super().__init__(directory, quarantine, what="popped messages", strict=True)
