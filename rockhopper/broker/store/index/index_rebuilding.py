"""Mark index files for rebuilding, and move them aside at the next start.

The file ``rockhopper/index-to-rebuild`` holds the name of the first index file that lacks entries.
Entries are in the order of the log, and only the last file may have room, so the files after it
must go as well. They are kept in the quarantine, and their entries are added again from the commit
log (index_catch_up.py).
"""

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.index.index import numbered_paths

log = structlog.get_logger("broker.store")


def mark_for_rebuilding(layout: StoreLayout, name: str) -> None:
    """Mark the files from *name* on for rebuilding. Raises OSError."""
    path = layout.index_to_rebuild
    noted = _read_noted_end(layout)
    if noted is None or int(name) < noted:
        disk.make_directories_durably(path.parent)
        disk.write_atomically(path, name.encode())


def move_marked_aside(layout: StoreLayout) -> None:
    """Move the marked files into the quarantine. Raises OSError."""
    first = _read_noted_end(layout)
    if first is None:
        return
    aside = layout.quarantine / "index"
    disk.make_directories_durably(aside)
    # The last one first: a crash then leaves an index without its end.
    for path in reversed(numbered_paths(layout.index)):
        if int(path.name) >= first:
            target, number = aside / path.name, 0
            while target.exists():
                number += 1
                target = aside / f"{path.name}-{number}"
            disk.move(path, target)
            log.warning("rebuilding an index file", path=str(path), kept_as=str(target))
    disk.remove_files([layout.index_to_rebuild])


def _read_noted_end(layout: StoreLayout) -> int | None:
    try:
        name = layout.index_to_rebuild.read_bytes().decode("ascii", "replace")
    except FileNotFoundError:
        return None
    # If the mark cannot be read, it counts for all files.
    return int(name) if name.isdecimal() else 0
