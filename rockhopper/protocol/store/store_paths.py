"""Names in a store directory that readers other than the broker need as well.

The whole of it stands in broker/settings/store_layout.py.
"""

COMMIT_LOG_DIRECTORY = "commitlog"
CONSUME_QUEUE_DIRECTORY = "consumequeue"
BATCH_CONSUME_QUEUE_DIRECTORY = "batchconsumequeue"
CONSUME_QUEUE_EXT_DIRECTORY = "consumequeue_ext"
INDEX_DIRECTORY = "index"
ABORT_FILE = "abort"
LOCK_FILE = "lock"
CHECKPOINT_FILE = "checkpoint"

OWN_DIRECTORY = "rockhopper"
"""Ours; RocketMQ ignores it."""
DELETED_TOPICS_FILE = "deleted-topics.records"
"""In OWN_DIRECTORY: topic -> commit log offset in front of which its records do not count.

Builds before 0.2.0 wrote ``deleted-topics.json`` (topic_ends.py says how either is read).
"""
PURGED_TOPICS_FILE = "purged-topics.records"
"""The same of topics that were emptied: their queues keep their offsets, and begin behind those."""

INVENTORY_FILE = "inventory.json"
"""In OWN_DIRECTORY: a checked line (checked_line.py) of what the store held when it was whole."""
COMMIT_LOG_DIRECTORY_FILE = "commit-log-directory"
"""In OWN_DIRECTORY: where the commit log is, if not below the root; one line, an absolute path."""

FILE_NAME_DIGITS = 20
"""A numbered file is named by the offset of its first byte."""


def is_numbered_file(name: str) -> bool:
    """Whether *name* is that of a file of the commit log."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()
