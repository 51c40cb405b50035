"""Queues whose messages have all expired: they alone say which offset is the next one.

Brokers never delete the last file of a queue, since a queue that began again at 0 would be behind
what its consumers have committed. The log knows nothing of such queues any more.
"""

import shutil
from pathlib import Path

from rockhopper.pipeline.derived.queue_files import (
    QueueFiles,
    find_queues,
    is_blank,
    queue_directory,
)
from rockhopper.pipeline.store_source.directory import StoreDirectory


def keep_expired_queues(root: Path, made: Path, store: StoreDirectory) -> int:
    """Copy them from the store in *root* to what was *made*; returns how many there are."""
    count = 0
    for key in find_queues(root):
        target = queue_directory(made, key)
        if target.exists() or key.topic in store.deleted_topics:
            continue
        files = QueueFiles(root, key)
        end = files.used_end()
        last = files.read(end - 1, end)
        if end <= files.start or is_blank(last)[0]:
            continue
        if 0 <= int(last["position"][0]) < store.start_offset and int(last["size"][0]) > 0:
            shutil.copytree(files.directory, target)
            count += 1
    return count
