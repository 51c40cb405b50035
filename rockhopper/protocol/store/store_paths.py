"""Names in a store directory that other readers than the broker need, and the form of its notes.

broker/settings/store_layout.py describes the whole directory. A note is a checked line: a file with
one line of JSON, and one with the CRC-32 of the first in hex.
"""

import json
from typing import Any
from zlib import crc32

COMMIT_LOG_DIRECTORY = "commitlog"
CONSUME_QUEUE_DIRECTORY = "consumequeue"
BATCH_CONSUME_QUEUE_DIRECTORY = "batchconsumequeue"
CONSUME_QUEUE_EXT_DIRECTORY = "consumequeue_ext"
INDEX_DIRECTORY = "index"
ABORT_FILE = "abort"
LOCK_FILE = "lock"
CHECKPOINT_FILE = "checkpoint"

OWN_DIRECTORY = "rockhopper"
"""Rockhopper's own files; RocketMQ ignores them."""
DELETED_TOPICS_FILE = "deleted-topics.records"
"""In OWN_DIRECTORY: topic -> commit log offset; records of the topic before it are ignored.

Builds before 0.2.0 wrote ``deleted-topics.json`` (topic_ends.py describes how to read either).
"""
PURGED_TOPICS_FILE = "purged-topics.records"
"""The same for purged topics: their queues keep their offsets and begin after those records."""

INVENTORY_FILE = "inventory.json"
"""In OWN_DIRECTORY: a checked line with the store's content when intact."""
COMMIT_LOG_DIRECTORY_FILE = "commit-log-directory"
"""In OWN_DIRECTORY: one line with the absolute path of the commit log, if it is elsewhere."""

FILE_NAME_DIGITS = 20
"""The name of a numbered file is the offset of its first byte."""


def is_numbered_file(name: str) -> bool:
    """Whether *name* is that of a file of the commit log."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()


def encode_checked_line(document: Any) -> bytes:
    """Return the content of the file."""
    line = json.dumps(document, separators=(",", ":")).encode()
    return line + f"\n{crc32(line):08x}\n".encode()


def decode_checked_line(data: bytes) -> Any:
    """Return the document. Raises ValueError for any damage."""
    line, crc, _ = data.split(b"\n")
    if int(crc, 16) != crc32(line):
        raise ValueError("its CRC does not match")
    return json.loads(line)
