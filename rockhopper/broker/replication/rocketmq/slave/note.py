"""That a store follows another broker's, so that nobody serves it by mistake.

``<root>/rockhopper/following.json``: one line of JSON and one with its CRC-32, as the inventory.

    {"master": "host:port"}

It is there before the first byte is copied and goes when the broker takes over. Damaged, it still
says that the store follows.
"""

from pathlib import Path

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checked_line, disk

FILE_NAME = "following.json"


def path_in(layout: StoreLayout) -> Path:
    """Where the note stands."""
    return layout.own / FILE_NAME


def followed_master(layout: StoreLayout) -> str | None:
    """Whom the store follows; blank if that cannot be read, None if nobody."""
    path = path_in(layout)
    if not path.exists():
        return None
    damaged = "the note that this store follows another broker is damaged"
    return checked_line.load(path, lambda document: str(document["master"]), damaged) or ""


def write(layout: StoreLayout, master: str) -> None:
    """Note it durably. Raises OSError."""
    disk.make_directories_durably(layout.own)
    disk.write_atomically(path_in(layout), checked_line.encode({"master": master}))


def remove(layout: StoreLayout) -> None:
    """The store is its broker's own from now on, durably. Raises OSError."""
    path_in(layout).unlink(missing_ok=True)
    disk.sync_directory(layout.own)
