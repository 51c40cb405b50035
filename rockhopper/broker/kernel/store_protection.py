"""File permissions of a store whose broker has users.

If a broker serves only users, its messages must not be readable for every account on its host. So
the directories of its store have mode 0700, and its files 0600. ``storeGroup`` names a group that
may read (Spark, the store tools): then the modes are 2750 and 0640, and new files belong to the
group too. Secrets stay with the owner: the table of users, and keys created for TLS.

The umask of the process sets the modes of new files. A store that was open before is changed once,
its root last: if a start is killed in between, the next one repeats this.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import structlog

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.settings.store_modes import NO_GROUP, Modes, find_modes

log = structlog.get_logger("broker.store")

OTHERS = 0o077
SECRET_NAMES = ("users.json", "tls")


def _explain(error: PermissionError, group: str) -> PermissionError:
    reason = f"cannot restrict access to the store ({error.strerror}): run the broker as "
    reason += "the owner of these files"
    if group:
        reason += f", and as a member of the group {group} (storeGroup)"
    return PermissionError(error.errno or errno.EPERM, reason, error.filename)


def protect_store(config: BrokerConfig) -> None:
    """Set the modes of *config* in an existing store, if its root has others.

    Raises:
        SettingError: as ``find_modes``.
        OSError: files belong to another user, or this user is not in the group.
    """
    modes = find_modes(config)
    if modes is None:
        return
    layout = StoreLayout.from_config(config.store)
    for root in (layout.root, layout.commit_log):
        if not root.is_dir():
            continue
        try:
            if _is_protected(root, modes):
                continue
            for path, is_directory, is_secret in _iterate_entries(root):
                _apply(modes, path, is_directory=is_directory, is_secret=is_secret)
            _apply(modes, root, is_directory=True, is_secret=False)
        except PermissionError as error:
            raise _explain(error, config.store.group) from error
        log.info(
            "the store is now readable only by the broker's user"
            if modes.group == NO_GROUP
            else "the store is now readable only by the broker's user and the group",
            directory=str(root),
            group=config.store.group or None,
        )


def _apply(modes: Modes, path: Path, *, is_directory: bool, is_secret: bool) -> bool:
    """Set the mode and group of *path*; return whether they differed. Raises OSError."""
    mode = modes.directory if is_directory else modes.file
    if is_secret:
        mode &= ~OTHERS
    found = path.stat(follow_symlinks=False)
    has_group = is_secret or modes.group in (NO_GROUP, found.st_gid)
    if has_group and stat.S_IMODE(found.st_mode) == mode:
        return False
    if not has_group:
        os.chown(path, -1, modes.group)
    path.chmod(mode)
    return True


def _is_protected(root: Path, modes: Modes) -> bool:
    found = root.stat()
    return stat.S_IMODE(found.st_mode) == modes.directory and (
        modes.group in (NO_GROUP, found.st_gid)
    )


def _iterate_entries(
    directory: Path, *, is_secret: bool = False
) -> Iterator[tuple[Path, bool, bool]]:
    """Yield every path below *directory*, a directory after its content; links are skipped."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                continue
            secret = is_secret or entry.name.startswith(SECRET_NAMES)
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _iterate_entries(path, is_secret=secret)
                yield path, True, secret
            elif entry.is_file(follow_symlinks=False):
                yield path, False, secret
