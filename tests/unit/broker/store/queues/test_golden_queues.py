"""Queues and checkpoints that RocketMQ wrote: read as it means them, and continued in its way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checkpoint
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.store.record_head import MAGIC_BLANK
from tests.support.golden_stores import copy_golden_store, golden_directory

STORES = ["basic30", "crcprop", "eof_exact8", "mix", "prepared_rollback", "three_sessions", "timer"]
INNER_BATCH = 0x80
PREPARED, ROLLBACK = 0x4, 0xC


@pytest.fixture(params=STORES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Give a copy of each store in turn."""
    return copy_golden_store(request.param, tmp_path / "store")


def records(root: Path) -> Iterator[tuple[bytes, StoredMessage]]:
    """The bytes and fields of each record in the commit log of *root*."""
    files = MappedFileQueue(StoreLayout(root).commit_log, 0)
    files.load()
    for file in files.files:
        position = 0
        while position + 8 <= file.size_bytes:
            size = int.from_bytes(file.read(position, position + 4), "big")
            magic = int.from_bytes(file.read(position + 4, position + 8), "big")
            if size == 0 or magic == MAGIC_BLANK:
                break
            record = file.read(position, position + size)
            yield record, decode_message(record)
            position += size
    files.close()


def open_queues(root: Path) -> ConsumeQueueTable:
    log_end = max(message.commit_log_offset + len(record) for record, message in records(root))
    table = ConsumeQueueTable(StoreLayout(root), 6_000_000, 13_800_000)
    table.load()
    for queue in table:
        queue.recover(log_end, trusted_below=log_end)
    return table


def file_bytes(root: Path) -> dict[str, bytes]:
    paths = [*root.glob("consumequeue/**/*"), *root.glob("batchconsumequeue/**/*")]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}


def queued(root: Path) -> Iterator[tuple[bytes, StoredMessage]]:
    """The records that belong to a queue: not those of transactions that are open or undone."""
    for record, message in records(root):
        if message.sys_flag & 0xC not in (PREPARED, ROLLBACK):
            yield record, message


def test_every_message_has_its_unit(root: Path) -> None:
    table = open_queues(root)
    found = 0
    for record, message in queued(root):
        queue = table.get(message.topic, message.queue_id)
        assert queue is not None, message.topic
        entry = queue.entry(message.queue_offset)
        assert entry is not None
        assert entry[:2] == (message.commit_log_offset, len(record))
        if message.topic != "SCHEDULE_TOPIC_XXXX":
            assert entry[2] == java_string_hash(message.properties.get("TAGS", ""))
        found += 1
    assert found > 0
    table.close()


def test_queues_end_with_their_last_message(root: Path) -> None:
    table = open_queues(root)
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for record, message in queued(root):
        count = int(message.properties.get("INNER_NUM", "1"))
        ends[message.topic, message.queue_id] = (
            message.queue_offset + count,
            message.commit_log_offset + len(record),
        )
    for (topic, queue_id), end in ends.items():
        queue = table.get(topic, queue_id)
        assert queue is not None
        assert (queue.max_offset, queue.commit_log_end) == end
        assert queue.min_offset == 0
    table.close()


def test_recovering_changes_no_byte(root: Path) -> None:
    before = file_bytes(root)
    open_queues(root).close()
    assert file_bytes(root) == before


def test_noting_all_messages_again_changes_no_byte(root: Path) -> None:
    before = file_bytes(root)
    table = open_queues(root)
    for _, message in queued(root):
        queue = table.get(message.topic, message.queue_id)
        if isinstance(queue, ConsumeQueue):
            entry = queue.entry(message.queue_offset)
            assert entry is not None
            queue.append(message.queue_offset, *entry)
    for _ in table.flush_steps(thorough=True):
        pass
    table.close()
    assert file_bytes(root) == before


def test_queues_that_we_write_are_those_of_rocketmq(root: Path, tmp_path: Path) -> None:
    theirs = open_queues(root)
    ours = ConsumeQueueTable(StoreLayout(tmp_path / "ours"), *theirs.file_sizes_bytes)
    for queue in theirs:
        copy = ours.get_or_create(queue.topic, queue.queue_id, batch=queue.IS_BATCH)
        if queue.IS_BATCH:
            for position, size, tags_code, store_time_ms, base, count, _, _ in queue.last_units(99):
                copy.append(base, position, size, tags_code, count, store_time_ms)
        else:
            for offset in range(queue.min_offset, queue.max_offset):
                entry = queue.entry(offset)
                assert entry is not None
                copy.append(offset, *entry)
    ours.close()
    theirs.close()
    assert file_bytes(tmp_path / "ours") == file_bytes(root)


def test_delayed_message_has_its_time_of_delivery_as_tags_code(tmp_path: Path) -> None:
    table = open_queues(copy_golden_store("mix", tmp_path / "store"))
    queue = table.get("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    assert queue.entry(0) == (0x2C0, 0xAD, 0x1A1F84612AB)
    table.close()


def test_message_within_an_inner_batch_is_found(tmp_path: Path) -> None:
    root = copy_golden_store("mix", tmp_path / "store")
    batches = [message for _, message in records(root) if message.sys_flag & INNER_BATCH]
    assert [message.queue_offset for message in batches] == [0, 3]
    table = open_queues(root)
    queue = table.get("BatchT", 0)
    assert isinstance(queue, BatchConsumeQueue)
    positions = [(queue.entry(offset) or (-1,))[0] for offset in range(7)]
    assert positions == [0x568, 0x568, 0x568, 0x68D, 0x68D, 0x77E, -1]
    table.close()


def test_times_lead_to_the_messages_stored_then(tmp_path: Path) -> None:
    root = copy_golden_store("basic30", tmp_path / "store")
    table = open_queues(root)
    times = {message.commit_log_offset: message.store_time_ms for _, message in records(root)}
    queue = table.get("TopicA", 0)
    assert isinstance(queue, ConsumeQueue)
    stored = [
        times[(queue.entry(offset) or (-1,))[0]]
        for offset in range(queue.min_offset, queue.max_offset)
    ]
    for time_ms in range(stored[0] - 1, stored[-1] + 2):
        found = queue.offset_by_time(time_ms, False, lambda position, _: times[position])
        assert found == sum(1 for stored_ms in stored if stored_ms < time_ms)
    table.close()


@pytest.mark.parametrize("name", STORES)
def test_checkpoint_is_written_back_as_it_was(name: str, tmp_path: Path) -> None:
    original = golden_directory() / name / "checkpoint"
    loaded = checkpoint.load(original)
    assert loaded.commit_log_ms > 0
    checkpoint.save(tmp_path / "checkpoint", loaded)
    assert (tmp_path / "checkpoint").read_bytes() == original.read_bytes()
