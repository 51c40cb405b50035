"""Stores that the reference wrote: every record reads, and writes to the same bytes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.protocol.java_hash import index_key_hash, java_string_hash
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.store.message_codec import (
    check_record,
    decode_message,
    decode_messages,
    encode_stored_message,
)
from rockhopper.protocol.store.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    BLANK_UNIT_SIZE_FIELD,
    CONSUME_QUEUE_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_HEADER_SIZE_BYTES,
    INDEX_SLOT,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_ROLLBACK, transaction_type
from tests.support.golden_stores import golden_directory

STORES = ["basic30", "crcprop", "eof_exact8", "mix", "prepared_rollback", "three_sessions", "timer"]
SLOTS = 16


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Path:
    """Give the directory of one store after the other."""
    return golden_directory() / str(request.param)


def records(store: Path) -> Iterator[tuple[int, bytes]]:
    """The records of a store's commit log, and where they stand."""
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        position = 0
        while position < len(data):
            offset = int(path.name) + position
            check = check_record(data, position, len(data) - position, offset)
            if not check.is_ok:
                assert check.is_blank or not any(data[position:]), check.reason
                break
            yield offset, data[position : position + check.size_bytes]
            position += check.size_bytes


def messages(store: Path) -> dict[int, StoredMessage]:
    return {offset: decode_message(record, check_crc=True) for offset, record in records(store)}


def test_every_record_is_written_as_it_was(store: Path) -> None:
    count = 0
    for offset, record in records(store):
        message = decode_message(record, check_crc=True)
        assert message.commit_log_offset == offset
        assert encode_stored_message(message) == record
        count += 1
    assert count >= 2


def test_consume_queues_point_at_their_messages(store: Path) -> None:
    by_offset = messages(store)
    for path in (store / "consumequeue").glob("*/*/*"):
        topic, queue_id = path.parts[-3], int(path.parts[-2])
        first = int(path.name) // CONSUME_QUEUE_UNIT.size
        for number, unit in enumerate(CONSUME_QUEUE_UNIT.iter_unpack(path.read_bytes())):
            offset, size, tags_code = unit
            if size in (0, BLANK_UNIT_SIZE_FIELD):
                continue
            message = by_offset[offset]
            assert message.size_bytes == size
            if topic.startswith("%LMQ%"):
                continue
            assert (message.topic, message.queue_id) == (topic, queue_id)
            assert message.queue_offset == first + number
            if topic != SCHEDULE_TOPIC:
                assert tags_code == java_string_hash(message.tags or "")


def test_batch_queue_points_at_inner_batches() -> None:
    store = golden_directory() / "mix"
    by_offset = dict(records(store))
    (path,) = (store / "batchconsumequeue").glob("*/*/*")
    offsets = []
    for unit in BATCH_CONSUME_QUEUE_UNIT.iter_unpack(path.read_bytes()):
        offset, size, _, store_time_ms, base, count, compacted, reserved = unit
        if not size:
            break
        inner = decode_messages(by_offset[offset])
        assert (len(inner), inner[0].store_time_ms) == (count, store_time_ms)
        assert (compacted, reserved) == (-1, 0)
        assert inner[0].queue_offset == base
        offsets += [message.queue_offset for message in inner]
    assert offsets == list(range(6))


def test_every_key_is_in_the_index_under_its_hash(store: Path) -> None:
    hashes: dict[int, set[int]] = {}
    for path in sorted((store / "index").iterdir()):
        data = path.read_bytes()
        *_, used = INDEX_HEADER.unpack_from(data)
        entries_start = INDEX_HEADER_SIZE_BYTES + SLOTS * INDEX_SLOT.size
        for number in range(1, used):
            key_hash, offset, _, _ = INDEX_ENTRY.unpack_from(
                data, entries_start + number * INDEX_ENTRY.size
            )
            hashes.setdefault(offset, set()).add(key_hash)
    expected: dict[int, set[int]] = {}
    for offset, message in messages(store).items():
        if transaction_type(message.sys_flag) == SYS_FLAG_TRANSACTION_ROLLBACK:
            continue
        unique_key = message.properties.get("UNIQ_KEY")
        keys = message.keys + ([unique_key] if unique_key else [])
        if keys:
            expected[offset] = {index_key_hash(message.topic, key) for key in keys}
    # Not the other way round: a store that was killed has lost its newest index file.
    assert {offset: expected.get(offset) for offset in hashes} == hashes
    assert hashes
