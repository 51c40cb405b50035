"""Moves a store aside before its log is replaced by its master's.

``<root>/rockhopper/replaced/`` then contains the store's content under the same names, except the
replica's durable state (``rockhopper/ha``), earlier quarantined data, and the lock. Only one such
copy exists: the next one replaces it. An operator may delete it once the replica is in sync.
"""

import shutil
from pathlib import Path

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk

DIRECTORY = "replaced"
_KEPT = frozenset({"ha", DIRECTORY, "quarantine"})


def set_aside(layout: StoreLayout) -> Path:
    """Move a store's content away, durably; no process may have the store open.

    A crash leaves the move incomplete; calling this again completes it.

    Raises:
        OSError: something could not be moved.
    """
    target = layout.own / DIRECTORY
    is_begun = layout.own / "replacing"
    if not is_begun.exists():
        shutil.rmtree(target, ignore_errors=True)
        disk.make_directories_durably(target / layout.own.name)
        is_begun.touch()
        disk.sync_directory(layout.own)
    disk.make_directories_durably(target / layout.own.name)
    for path in sorted(layout.root.iterdir()):
        if path not in (layout.own, layout.lock):
            _move(path, target / path.name)
    for path in sorted(layout.own.iterdir()):
        if path.name not in _KEPT and path != is_begun:
            _move(path, target / layout.own.name / path.name)
    if layout.commit_log.exists():
        _move(layout.commit_log, target / layout.commit_log.name)
    for directory in (layout.root, target, target / layout.own.name):
        disk.sync_directory(directory)
    is_begun.unlink()
    disk.sync_directory(layout.own)
    return target


def _move(path: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    shutil.move(path, target)
