"""Whom the log of a replica set lets in, where its broker has users.

The replicas tell each other of users in the log, secrets included, so it is as secret as the table
of users, and so is what is copied of it: quarantine and replaced stores, below <root>/rockhopper.
"""

import structlog

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk

log = structlog.get_logger("broker.store")


def close_to_others(config: BrokerConfig) -> None:
    """Let the owner alone into what holds secrets, as far as it is there. Raises OSError."""
    if not (config.auth.authentication_enabled and config.replication.is_replica):
        return
    layout = StoreLayout.of(config.store)
    closed = [
        str(directory)
        for directory in (layout.commit_log, layout.own)
        if directory.is_dir() and disk.close_to_others(directory)
    ]
    if closed:
        log.info("the log tells the other replicas users' secrets: mode 0700 now", closed=closed)
