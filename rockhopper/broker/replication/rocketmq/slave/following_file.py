"""The note that a store follows another broker's, so that it is not served by mistake.

``<root>/rockhopper/following.json``: one line of JSON and one with its CRC-32, as the inventory.

    {"master": "host:port"}

The note is written before the first byte is copied, and removed when the broker takes over. A
damaged note still means that the store follows.
"""

from pathlib import Path

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checked_line, disk

FILE_NAME = "following.json"


def path_in(layout: StoreLayout) -> Path:
    """Return the path of the note."""
    return layout.own / FILE_NAME


def read_followed_master(layout: StoreLayout) -> str | None:
    """Return the followed master; blank if the note is damaged, None if there is no note."""
    path = path_in(layout)
    if not path.exists():
        return None
    damaged = "the record that this store follows another broker is damaged"
    return checked_line.load(path, lambda document: str(document["master"]), damaged) or ""


def find_master(config: BrokerConfig) -> str | None:
    """Return the master that the settings or the store require to follow; None if there is none.

    It is blank if neither contains its address.
    """
    noted = read_followed_master(StoreLayout.from_config(config.store))
    return config.following.follow_master or noted


def write(layout: StoreLayout, master: str) -> None:
    """Write the note durably. Raises OSError."""
    disk.make_directories_durably(layout.own)
    disk.write_atomically(path_in(layout), checked_line.encode({"master": master}))


def remove(layout: StoreLayout) -> None:
    """Remove the note durably: the store no longer follows. Raises OSError."""
    path_in(layout).unlink(missing_ok=True)
    disk.sync_directory(layout.own)
