"""A master's end of the topic: order, and that nothing is lost."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.state_records import StateKind, decode_state
from rockhopper.broker.replication.state.state_log import StateLog
from rockhopper.broker.store.files.errors import NotReplicatedError, StoreError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.open_stores import FILE_SIZE_BYTES, open_store, put


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    store = open_store(tmp_path, sync_flush_timeout_ms=50)
    yield store
    store.abandon()


def told(store: MessageStore) -> list[bytes]:
    """The payloads of all that stands in the log, and the bodies of messages."""
    found = []
    for message in map(decode_message, store.reading.records_from(0)):
        is_state = message.topic == STATE_TOPIC
        found.append(decode_state(message.body).entries[0][1] if is_state else message.body)
    return found


def note(log: StateLog, payload: bytes) -> None:
    log.note([(StateKind.OFFSETS, payload)])


async def test_what_is_noted_stands_in_front_of_the_next_message(store: MessageStore) -> None:
    log = StateLog(store)
    note(log, b"state")
    put(store, b"message")
    assert told(store) == [b"state", b"message"]


async def test_without_a_pass_it_is_written_in_the_next_turn(store: MessageStore) -> None:
    note(StateLog(store), b"state")
    assert told(store) == []
    await asyncio.sleep(0)
    assert told(store) == [b"state"]


async def test_what_a_failed_pass_took_along_is_staged_again_in_its_order(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = StateLog(store)
    note(log, b"1")
    note(log, b"2")
    with monkeypatch.context() as broken:
        broken.setattr(MappedFile, "pwrite", _refuse)
        with pytest.raises(StoreError):
            put(store, b"message")
    note(log, b"3")
    await log.wait_until_confirmed()
    assert told(store) == [b"1", b"2", b"3"]


async def test_what_cannot_be_written_now_is_not_confirmed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = StateLog(store)
    with monkeypatch.context() as broken:
        broken.setattr(MappedFile, "pwrite", _refuse)
        note(log, b"1")
        with pytest.raises(NotReplicatedError):
            await log.wait_until_confirmed()
    log.flush()
    assert told(store) == [b"1"]
    log.close()


def _refuse(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


async def test_nothing_is_left_staged_at_the_end(store: MessageStore) -> None:
    log = StateLog(store)
    note(log, b"1")
    log.close()
    assert told(store) == [b"1"]


async def test_a_change_that_is_not_confirmed_is_told_so(store: MessageStore) -> None:
    store.safe_point.replicate(0, 50)
    log = StateLog(store)
    note(log, b"state")
    with pytest.raises(NotReplicatedError, match="make the change again"):
        await log.wait_until_confirmed()
    store.safe_point.confirm(store.log.written_offset)
    await log.wait_until_confirmed()


async def test_what_no_file_can_hold_does_not_stop_the_rest(store: MessageStore) -> None:
    log = StateLog(store)
    note(log, bytes(FILE_SIZE_BYTES))
    note(log, b"next")
    await log.wait_until_confirmed()
    assert told(store) == [b"next"]
