"""Passes that cannot be written: what stays, what is given out again, what nobody sees."""

import errno

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import DiskFullError, StoreError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_stores import Stores, bodies, put, stage


def fail_pwrite(monkeypatch: pytest.MonkeyPatch, number: int = errno.EIO) -> None:
    def pwrite(*_arguments: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(MappedFile, "pwrite", pwrite)


def test_a_pass_that_cannot_be_written_frees_its_queue_offsets(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, b"before")
    store.staging.read_clock()
    for queue_id in (0, 1, 0):
        stage(store, b"lost", queue_id=queue_id)
    with monkeypatch.context() as broken:
        fail_pwrite(broken)
        with pytest.raises(StoreError):
            store.commit()
    assert put(store, b"after").queue_offset == 1
    assert put(store, b"after", queue_id=1).queue_offset == 0
    assert bodies(store) == [b"before", b"after"]
    assert store.dispatch.offset == store.log.written_offset


def test_what_a_full_file_took_stays_when_the_rest_of_the_pass_fails(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.staging.read_clock()
    stage(store, b"kept" + bytes(2000))
    stage(store, b"kept too" + bytes(1000), queue_id=1)
    stage(store, b"lost" + bytes(2000))
    with monkeypatch.context() as broken:
        fail_pwrite(broken)
        with pytest.raises(StoreError):
            store.commit()
    assert [body.rstrip(b"\0") for body in bodies(store)] == [b"kept"]
    assert len(bodies(store, queue_id=1)) == 1
    assert put(store, b"next").queue_offset == 1
    assert len(bodies(store)) == 2


def test_nothing_of_a_pass_is_visible_whose_write_failed_when_a_file_was_full(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    put(store, b"before")
    store.staging.read_clock()
    stage(store, b"lost" + bytes(3000))
    with monkeypatch.context() as broken:
        fail_pwrite(broken)
        with pytest.raises(StoreError):
            stage(store, b"refused" + bytes(3000))
    # The disk is well again when the pass ends; it has failed all the same.
    with pytest.raises(StoreError):
        store.commit()
    assert put(store, b"after").queue_offset == 1
    assert bodies(store) == [b"before", b"after"]
    assert bodies(stores.reopen_after_kill()) == [b"before", b"after"]


def test_a_full_disk_refuses_one_message_and_keeps_the_pass(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.staging.read_clock()
    stage(store, b"kept" + bytes(3000))

    def no_room(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as full:
        full.setattr(disk, "preallocate", no_room)
        with pytest.raises(DiskFullError):
            stage(store, bytes(3000))
    store.commit()
    assert len(bodies(store)) == 1
    assert put(store, bytes(3000)).queue_offset == 1
