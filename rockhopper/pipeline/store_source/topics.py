"""Find the topics of a store, and refuse unknown ones.

A topic exists if the broker's table contains it or one of its queues is left, even without
messages. RocketMQ may keep that table in RocksDB; then the topics are unknown.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import suggest_near_or_some
from rockhopper.protocol.names import is_system_topic
from rockhopper.protocol.store import table_changes
from rockhopper.protocol.store.journal_records import Record, decode_records
from rockhopper.protocol.store.store_paths import (
    BATCH_CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    OWN_DIRECTORY,
)

_CONFIG = "config"
_TOPICS_FILE = "topics.json"
_FILE_OF_ROCKSDB = "CURRENT"
_MULTI_TAG = "MULTI_TAG"


def topic_table(root: Path) -> dict[str, object] | None:
    """Return the broker's topic table in the store *root*; None if there is none."""
    return table_in(root, _TOPICS_FILE, "topicConfigTable")


def table_in(root: Path, file_name: str, key: str) -> dict[str, object] | None:
    """Return the entry *key* of a broker table, with its latest changes; None without a file."""
    path = root / _CONFIG / file_name
    changes = root / OWN_DIRECTORY / table_changes.DIRECTORY / file_name
    for each in (path, path.with_name(f"{file_name}.bak")):
        try:
            # The broker starts a new journal after it has written the file.
            records = _records_in(changes)
            content = each.read_bytes()
            table = json.loads(content)[key]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(table, dict):
            return _with_changes(table, records, content)
    return None


def _records_in(directory: Path) -> list[Record]:
    """Return the journal entries in the files of a directory."""
    if not directory.is_dir():
        return []
    files = sorted(directory.glob(f"*{table_changes.SUFFIX}"))
    return [record for file in files for record in decode_records(file.read_bytes()).records]


def _with_changes(
    table: dict[str, object], records: list[Record], content: bytes
) -> dict[str, object]:
    """Apply to a table the changes made since its file, *content*, was written."""
    if not records:
        return table
    for change in table_changes.changes_of(records, [table_changes.fingerprint(content)]):
        if change.value is None:
            table.pop(change.name, None)
        else:
            table[change.name] = change.value
    return table


def may_have_multi_tags(root: Path | None) -> bool:
    """Return whether a topic of the store *root* may have messages with several tags."""
    table = None if root is None else topic_table(root)
    if table is None:
        return True
    kinds = (each.get("topicFilterType") for each in table.values() if isinstance(each, dict))
    return any(kind == _MULTI_TAG for kind in kinds)


def known_topics(root: Path | None) -> frozenset[str] | None:
    """Return the topics of the store *root*; None if its files do not show them."""
    if root is None or any((root / _CONFIG).glob(f"**/{_FILE_OF_ROCKSDB}")):
        return None
    found = set(topic_table(root) or ())
    for name in (CONSUME_QUEUE_DIRECTORY, BATCH_CONSUME_QUEUE_DIRECTORY):
        try:
            found.update(path.name for path in (root / name).iterdir() if path.is_dir())
        except OSError:
            continue
    return frozenset(found) or None


def check_topics(root: Path | None, topics: Iterable[str]) -> None:
    """Check that the store *root* has all *topics*, as far as its files show.

    Raises:
        PipelineError: names a missing topic, and similar names.
    """
    known = known_topics(root)
    for topic in sorted(topics):
        if known is None or topic in known or is_system_topic(topic):
            continue
        near = suggest_near_or_some(topic, application_topics(known))
        raise PipelineError(
            f"the store {root} has no topic {topic!r}{near}: correct the name, or, if the topic "
            "was deleted, read what the log still holds of it with rocketmq-store's option "
            "includeDeletedTopics=true"
        )


def application_topics(topics: Iterable[str]) -> list[str]:
    """Return the *topics* that users create, sorted."""
    return sorted(name for name in topics if not is_system_topic(name) and name[:1] != "%")
