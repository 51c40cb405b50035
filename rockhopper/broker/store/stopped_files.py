"""The sizes of tables and journals at a clean stop, so that the next start logs missing ones.

A missing or empty file looks like one that never held anything, and one that was cut between two
records looks complete. So sizes are saved, as the last step before ``abort`` is removed.

``<root>/rockhopper/stopped-files.json``: a line of JSON and one with its CRC-32, as the inventory.

    {"inventory": <CRC-32 of inventory.json>, "sizes": {"config/topics.json": 1234, …}}

If an older release ran since, the inventory has changed, and the saved sizes are ignored.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checked_line, disk
from rockhopper.broker.store.recovering import inventory

log = structlog.get_logger("broker.store")

SIZES_FILE = "stopped-files.json"


def save_table_sizes(layout: StoreLayout) -> None:
    """Save the sizes; on a full disk the former ones stay, which the next start ignores."""
    with contextlib.suppress(OSError):
        sizes = {
            _relative_name(path, layout): path.stat().st_size
            for path in _tables_and_journals(layout)
        }
        document = {"inventory": _inventory_checksum(layout), "sizes": sizes}
        disk.write_atomically(layout.own / SIZES_FILE, checked_line.encode(document))


def check_table_sizes(layout: StoreLayout) -> None:
    """Log files that are missing or shorter; call it only after a clean stop.

    RocketMQ may have written the tables since, and a start that leaves a replica set rewrites its
    small files: of these, only missing or empty ones are logged.
    """
    try:
        document = checked_line.decode((layout.own / SIZES_FILE).read_bytes())
        if document["inventory"] != _inventory_checksum(layout):
            return
        sizes: dict[str, int] = document["sizes"]
    except (OSError, ValueError, KeyError):
        return
    found = {_relative_name(path, layout): path for path in _tables_and_journals(layout)}
    replaced = tuple(
        f"{_relative_name(path, layout)}/" for path in (layout.config, layout.own / "ha")
    )
    lost = []
    for name, size_bytes in sizes.items():
        least_bytes = min(size_bytes, 1) if name.startswith(replaced) else size_bytes
        now_bytes = found[name].stat().st_size if name in found else None
        if now_bytes is None or now_bytes < least_bytes:
            now = "missing" if now_bytes is None else f"{now_bytes} bytes"
            lost.append(f"{name}: {now}, {size_bytes} bytes at the stop")
    if lost:
        log.warning(
            "files are missing or shorter than at the last stop, and their content is lost; "
            "unless you removed them on purpose, restore them and check the disk",
            directory=str(layout.root),
            files=lost,
        )


def _relative_name(path: Path, layout: StoreLayout) -> str:
    return path.relative_to(layout.root).as_posix()


def _inventory_checksum(layout: StoreLayout) -> int:
    return crc32((layout.own / inventory.INVENTORY_FILE).read_bytes())


def _tables_and_journals(layout: StoreLayout) -> Iterator[Path]:
    """Yield tables and journals, without the store's own notes, which have other checks."""
    passed_over = layout.quarantine, layout.deleted_queues
    directories = [path for path in layout.own.iterdir() if path not in passed_over]
    paths = [
        *layout.config.glob("*.json"),
        *layout.own.glob("*.records"),
        layout.topic_ids,
        layout.topic_ends,
        layout.log_history,
    ]
    for directory in directories:
        paths += directory.rglob("*") if directory.is_dir() else ()
    for path in sorted(paths):
        if path.is_file() and path.suffix not in (".bak", ".tmp"):
            yield path
