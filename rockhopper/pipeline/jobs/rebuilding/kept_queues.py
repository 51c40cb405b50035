"""Keep queues whose messages have all expired: only these files hold the next offset.

Brokers never delete the last file of a queue. If a queue started at 0 again, it would be behind the
committed offsets of its consumers. The log has no trace of such queues.
"""

import shutil
from pathlib import Path

from rockhopper.pipeline.derived.queue_files import (
    ListedQueueFiles,
    find_queues,
    is_blank,
    queue_directory,
)
from rockhopper.pipeline.store_source.directory import StoreDirectory


def keep_expired_queues(root: Path, made: Path, store: StoreDirectory) -> int:
    """Copy the expired queues from the store in *root* to *made*; return their number."""
    count = 0
    for key in find_queues(root):
        target = queue_directory(made, key)
        if target.exists() or key.topic in store.deleted_topics:
            continue
        files = ListedQueueFiles(root, key)
        end = files.used_end()
        last = files.read(end - 1, end)
        if end <= files.start or is_blank(last)[0]:
            continue
        if 0 <= int(last["position"][0]) < store.start_offset and int(last["size"][0]) > 0:
            shutil.copytree(files.directory, target)
            count += 1
    return count
