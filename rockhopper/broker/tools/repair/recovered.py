"""Open a store like a broker at its start, and close it cleanly.

So the same code has recovered each new store once, before a broker opens it.
"""

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.disk import sync_directory
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.opening import Extent
from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.recovering.recovery import RecoveryReport
from rockhopper.broker.tools.progress import Bar
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.store.queue_layout import IndexGeometry


def recover(config: BrokerConfig) -> RecoveryReport:
    """Recover the store of *config*, limit group offsets to existing messages, and close it.

    Raises:
        StoreError: it cannot be opened.
        OSError: the disk is full or failing.
    """
    with Bar("Building queues and index"):
        return asyncio.run(_recover(config))


async def _recover(config: BrokerConfig) -> RecoveryReport:
    tables = Tables(config, BrokerClock(_now_ms))
    tables.load()
    store = MessageStore.open(
        config.store,
        now_ms=_now_ms,
        batch_topic=tables.topics.is_batch,
        known_offsets=tables.known_offsets,
        delay_ms=tables.delays.levels.delay_ms,
        extent=Extent(is_in_the_making=True),
    )
    try:
        await _bound_offsets(tables, store)
        await store.close()
    except BaseException:
        store.abandon()
        raise
    if store.failure is not None:
        raise store.failure
    sync_directory(config.store.root)
    return store.opened.report


async def _bound_offsets(tables: Tables, store: MessageStore) -> None:
    # RocketMQ reads only the table file: write the changes in the journal into it.
    if next(iter(tables.offsets.entries()), None):
        tables.offsets.start_saving()
        tables.offsets.clamp(lambda topic, queue_id: store.reading.queue_range(topic, queue_id)[1])
        await tables.offsets.on_disk()
        tables.offsets.stop_saving()
        tables.offsets.close_journal()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def copy_sizes(
    config: BrokerConfig, sizes: tuple[int, int, int], shape: IndexGeometry | None
) -> BrokerConfig:
    """Return *config* with the file sizes of an existing store.

    *sizes* are those of log, queues and batch queues; 0 leaves a setting unchanged.
    """
    store = config.store
    names = (
        "commit_log_file_size_bytes",
        "consume_queue_file_size_bytes",
        "batch_consume_queue_file_size_bytes",
    )
    changes: dict[str, Any] = {name: size for name, size in zip(names, sizes, strict=True) if size}
    if shape is not None:
        changes |= {
            "index_slot_count": shape.slot_count,
            "index_entry_count_max": shape.entry_count_max,
        }
    return dataclasses.replace(config, store=dataclasses.replace(store, **changes))


def place_store(config: BrokerConfig, root: Path) -> BrokerConfig:
    """Return *config* for a store in *root*, with its log below it."""
    store = dataclasses.replace(config.store, root=root, commit_log_directory=None)
    return dataclasses.replace(config, store=store)


def file_sizes(view: StoreView) -> tuple[int, int, int]:
    """Return the file sizes of log, queues and batch queues; 0 if unknown."""
    _, plain, batch = view.noted.file_sizes if view.noted is not None else (0, 0, 0)
    found = {False: plain, True: batch}
    for key in view.queues:
        if not found[key.is_batch]:
            found[key.is_batch] = view.queues.open(*key[:2], is_batch=key.is_batch).file_size_bytes
        if all(found.values()):
            break
    return view.log.file_size_bytes, found[False], found[True]


def ends_to_keep(view: StoreView) -> dict[QueueKey, int]:
    """Return queue ends that the log may no longer show, from units and the inventory."""
    ends = dict(view.noted.queue_ends) if view.noted is not None else {}
    for key, end in view.queues.ends().items():
        ends[key] = max(end, ends.get(key, 0))
    return ends
