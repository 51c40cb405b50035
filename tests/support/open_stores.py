"""Message stores with small files and a test clock, opened, closed and killed."""

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rockhopper.broker.settings.broker_config import StoreConfig
from rockhopper.broker.settings.live_settings import LiveStoreSettings
from rockhopper.broker.store.files.mapped_file import MAPPED_FILES_MAX
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.opening import Extent
from rockhopper.broker.store.put import MessageToStore, PutResult
from rockhopper.broker.store.reading.get_result import GetResult
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.killed_store import copy_killed
from tests.support.peers import Clock

STORE_HOST = bytes.fromhex("0a00000100002a9f")
BORN_HOST = bytes.fromhex("010203040000162e")
FILE_SIZE_BYTES = 4096
SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": FILE_SIZE_BYTES,
    "consume_queue_file_size_bytes": 20 * 50,
    "batch_consume_queue_file_size_bytes": 46 * 20,
    "index_slot_count": 16,
    "index_entry_count_max": 400,
}


def store_config(root: Path, **fields: Any) -> StoreConfig:
    """Return the settings of a store; *fields* are those of StoreConfig and its live settings."""
    own = {field.name for field in dataclasses.fields(StoreConfig)}
    live = LiveStoreSettings(**{name: fields.pop(name) for name in fields.keys() - own})
    return StoreConfig(root=root, live=live, **fields)


def open_store(
    root: Path,
    clock: Callable[[], int] | None = None,
    *,
    batch_topics: Collection[str] = (),
    store_host: bytes = STORE_HOST,
    mapped_files_max: int = MAPPED_FILES_MAX,
    known_offsets: Callable[[], Mapping[tuple[str, int], int]] = dict,
    cut_at: int | None = None,
    **fields: Any,
) -> MessageStore:
    """Open the store in *root*; *fields* are those of StoreConfig."""
    config = store_config(root, **{**SIZES, **fields})
    store = MessageStore.open(
        config,
        now_ms=clock or Clock(),
        batch_topic=lambda topic: topic in batch_topics,
        store_host=store_host,
        known_offsets=known_offsets,
        extent=Extent(mapped_files_max, cut_at),
    )
    if config.light_queues_enabled and config.multi_dispatch_enabled:
        store.staging.multi_dispatch.enable()
    return store


def put(
    store: MessageStore,
    body: bytes = b"hello",
    topic: str = "TopicA",
    queue_id: int = 0,
    properties: str = "",
    **fields: Any,
) -> PutResult:
    """Store one message."""
    fields.setdefault("born_host", BORN_HOST)
    return store.put(MessageToStore(topic, queue_id, body, properties, **fields))


def stage(
    store: MessageStore, body: bytes = b"hello", topic: str = "TopicA", queue_id: int = 0
) -> int:
    """Add a message to the pass, like the hot path; return its commit log offset."""
    staged = store.staging.stage_plain(
        store.staging.tail(topic, queue_id),
        body,
        "UNIQ_KEY\x01AB12\x02",
        b"",
        0,
        0,
        0,
        BORN_HOST,
        0,
    )
    assert staged is not None
    return staged[0]


def body_filling(store: MessageStore, spare_bytes: int, topic: str = "TopicA") -> bytes:
    """Return a body for a staged message that leaves *spare_bytes* in the current log file."""
    free = FILE_SIZE_BYTES - store.log.written_offset % FILE_SIZE_BYTES
    overhead = 91 + len(topic) + len("UNIQ_KEY\x01AB12\x02")
    return bytes(free - overhead - spare_bytes)


def messages(
    store: MessageStore, topic: str = "TopicA", queue_id: int = 0, offset: int = 0
) -> list[StoredMessage]:
    """Return all messages from *offset* on, in as many pulls as needed."""
    found: list[StoredMessage] = []
    while (result := store.reading.get_message(topic, queue_id, offset, 32)).count:
        found += decode_messages(result.body)
        offset = result.next_offset
    return found


def bodies(
    store: MessageStore, topic: str = "TopicA", queue_id: int = 0, offset: int = 0
) -> list[bytes]:
    """Return the bodies of ``messages``."""
    return [message.body for message in messages(store, topic, queue_id, offset)]


def flush(store: MessageStore) -> None:
    """Flush the commit log and run the follow-up work, like the flush service."""
    store.flush_now()


def flush_derived_files(store: MessageStore) -> None:
    """Flush queues and index, then save the checkpoint, like the flush service."""
    for _ in store.flush_service.derived.steps(True):
        pass
    store.flush_service.derived.save_checkpoint()


def close(store: MessageStore) -> None:
    """Shut down cleanly."""
    asyncio.run(store.close())


class Stores:
    """The stores of one test, for a fixture that closes them."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = Clock()
        self.root = tmp_path / "store"
        self._parent = tmp_path
        self.opened: dict[Path, MessageStore] = {}
        self._kills = 0

    def open(self, root: Path | None = None, **fields: Any) -> MessageStore:
        """Open the store, or a copy of it."""
        root = root or self.root
        store = self.opened[root] = open_store(root, self.clock, **fields)
        return store

    async def start(self, **fields: Any) -> MessageStore:
        """Open the store and start its services; the test closes it, in its own event loop."""
        store = open_store(self.root, self.clock, **fields)
        await store.start()
        return store

    def reopen_after_kill(self, **fields: Any) -> MessageStore:
        """Open the files that a kill now would leave; the killed store stays usable."""
        self._kills += 1
        copy = copy_killed(self.root, self._parent / f"killed{self._kills}")
        return self.open(copy, **fields)

    def reopen_after_stop(self, **fields: Any) -> MessageStore:
        """Close the store cleanly and open it again."""
        close(self.opened.pop(self.root))
        return self.open(**fields)

    def close_all(self) -> None:
        """Close all open stores."""
        for store in self.opened.values():
            close(store)


def tagged(tag: str) -> str:
    return f"TAGS\x01{tag}\x02"


def fill(store: MessageStore, count: int, size_bytes: int = 10, tag: str = "a") -> None:
    for number in range(count):
        put(store, b"%d" % number + bytes(size_bytes), properties=tagged(tag))


def got(result: GetResult) -> tuple[str, int, int, int]:
    return result.status.value, result.next_offset, result.min_offset, result.max_offset
