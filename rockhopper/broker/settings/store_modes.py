"""The modes of a store's files, by the settings authenticationEnabled and storeGroup.

no users           by the umask of the process
users              0700 for directories, 0600 for files
users, storeGroup  2750 and 0640; new files belong to the group too
"""

import os
from typing import NamedTuple

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.setting_fields import SettingError

NO_GROUP = -1


class Modes(NamedTuple):
    """The modes for a store's files."""

    directory: int = 0o700
    file: int = 0o600
    group: int = NO_GROUP
    umask: int = 0o077


def find_modes(config: BrokerConfig) -> Modes | None:
    """Return the modes for *config*; None if every user of the host may read the store.

    Raises:
        SettingError: there is no such group, or the log holds secrets that it must not read.
    """
    if not config.auth.authentication_enabled:
        return None
    name = config.store.group
    if not name:
        return Modes()
    if config.replication.is_replica:
        reason = (
            "a replica's log contains secrets of users; let Spark read over the network instead"
        )
        raise SettingError("storeGroup", name, reason)
    import grp  # not on Windows

    try:
        return Modes(0o2750, 0o640, grp.getgrnam(name).gr_gid, 0o027)
    except KeyError:
        raise SettingError("storeGroup", name, "this host has no such group") from None


def use_umask(config: BrokerConfig) -> None:
    """Set this process's umask to the modes of its store. Raises SettingError."""
    modes = find_modes(config)
    if modes is not None:
        os.umask(os.umask(modes.umask) | modes.umask)
