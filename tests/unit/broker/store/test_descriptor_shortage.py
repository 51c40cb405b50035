"""No file descriptor is free: nothing is lost, confirmed falsely, or stopped for good."""

import gc
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.server.remoting.dispatcher import error_response
from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store import dispatch
from rockhopper.broker.store import flush as flush_service
from rockhopper.broker.store.files.checkpoint import load
from rockhopper.broker.store.files.errors import StoreBusyError, StoreError, TooManyOpenFilesError
from rockhopper.protocol.codes import ResponseCode
from tests.support.no_descriptor import no_descriptor_free
from tests.support.open_stores import (
    Stores,
    bodies,
    body_filling,
    flush,
    flush_derived_files,
    put,
    stage,
)
from tests.support.raw_peer import until

EAGER: dict[str, Any] = {
    "flush_interval_ms": 10,
    "consume_queue_flush_interval_ms": 10,
    "consume_queue_flush_thorough_interval_ms": 100,
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again almost at once."""
    monkeypatch.setattr(flush_service, "SHORTAGE_PAUSE_S", 0.001)
    monkeypatch.setattr(dispatch, "RETRY_INTERVAL_S", 0.001)


@pytest.fixture(autouse=True)
def mappings_hold_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Map as where there was no compiler."""
    monkeypatch.setattr("rockhopper.broker.store.files.mapped_file._mapping", None)


def saved_times_ms(stores: Stores) -> tuple[int, ...]:
    return load(stores.root / "rockhopper" / "checkpoint")[:3]


def test_a_queue_that_could_not_be_flushed_is_flushed_the_next_time(stores: Stores) -> None:
    store = stores.open()
    first_ms = stores.clock.now_ms
    stores.clock.advance(1000)
    for queue_id in range(3):
        put(store, queue_id=queue_id, properties="KEYS\x01k\x02")
    flush(store)
    for _ in range(3):
        with no_descriptor_free(), pytest.raises(TooManyOpenFilesError):
            flush_derived_files(store)
        assert store.opened.queues.dirty_count == 3
        store.flush_service.derived.save_checkpoint()
        assert saved_times_ms(stores)[1:] != (first_ms + 1000,) * 2
    flush_derived_files(store)
    assert store.opened.queues.dirty_count == 0
    assert saved_times_ms(stores) == (first_ms + 1000,) * 3


def test_a_checkpoint_that_could_not_be_saved_is_saved_the_next_time(stores: Stores) -> None:
    store = stores.open()
    stores.clock.advance(1000)
    put(store)
    flush(store)
    for _ in store.flush_service.derived.steps(True):
        pass
    with no_descriptor_free(), pytest.raises(TooManyOpenFilesError):
        store.flush_service.derived.save_checkpoint()
    store.flush_service.derived.save_checkpoint()
    assert saved_times_ms(stores) == (stores.clock.now_ms,) * 3


async def test_the_flush_goes_on_when_there_are_descriptors_again(stores: Stores) -> None:
    store = await stores.start(**EAGER)
    put(store)
    await until(lambda: saved_times_ms(stores)[1] == stores.clock.now_ms)
    stores.clock.advance(1000)
    with capture_logs() as lines:
        put(store, b"late", properties="KEYS\x01k\x02")
        with no_descriptor_free():
            # The first may have been flushed before the descriptors were gone.
            put(store, b"later")
            await until(lambda: any("waits for a file desc" in line["event"] for line in lines))
            assert store.failure is None
        await until(lambda: saved_times_ms(stores) == (stores.clock.now_ms,) * 3)
        await until(lambda: any(line["event"] == "flushing has resumed" for line in lines))
    assert sum("waits for a file desc" in line["event"] for line in lines) <= 2
    assert [line for line in lines if line["log_level"] == "critical"] == []
    await store.close()
    assert not (stores.root / "abort").exists()


async def test_nobody_is_told_of_a_flush_that_did_not_take_place(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_service, "EXPIRY_INTERVAL_S", 0.005)
    store = await stores.start(flush_disk_type=FlushDiskType.SYNC, sync_flush_timeout_ms=20)
    end = put(store, b"early").end_offset
    await store.safe_point.wait(end)
    store.opened.mappings.release_all()
    told: list[StoreError | None] = []
    with no_descriptor_free():
        store.staging.read_clock()
        stage(store, b"late")
        store.safe_point.when(store.commit(), told.append)
        await until(lambda: bool(told))
        assert isinstance(told[0], StoreBusyError)
        assert store.reading.queue_range("TopicA", 0) == (0, 1)
        assert store.failure is None
    await until(lambda: bodies(store) == [b"early", b"late"])
    await store.close()


async def test_a_queue_that_cannot_be_opened_is_refused_by_its_reason_and_catches_up(
    stores: Stores,
) -> None:
    store = await stores.start()
    # Each send makes its queue's file, as it does when too many wait for the flush thread.
    store.opened.mappings.drafts_max = 0
    put(store)
    store.opened.mappings.release_all()
    gc.collect()
    with no_descriptor_free():
        put(store, b"late", queue_id=1)
        with pytest.raises(TooManyOpenFilesError, match="ulimit -n") as refused:
            store.check_writable()
        answer = error_response(refused.value)
        assert answer is not None
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "LimitNOFILE=" in str(answer.remark)
        assert "disk space" not in str(answer.remark)
    await until(lambda: store.is_writable)
    assert bodies(store, queue_id=1) == [b"late"]
    await store.close()


async def test_what_is_short_of_descriptors_gets_those_of_queues(stores: Stores) -> None:
    store = await stores.start(**EAGER)
    store.opened.mappings.drafts_max = 0  # So that the queues hold descriptors.
    for queue_id in range(8):
        put(store, queue_id=queue_id)
    stores.clock.advance(1000)
    with no_descriptor_free():
        put(store, b"late")
        await until(lambda: store.opened.checkpoint.consume_queue_ms == stores.clock.now_ms)
    await store.close()


def test_a_log_file_that_cannot_be_opened_refuses_by_its_reason(stores: Stores) -> None:
    store = stores.open()
    put(store, body_filling(store, 8))
    ahead = store.opened.commit_log.next_file.made
    assert ahead is not None
    ahead.result()
    with no_descriptor_free(), pytest.raises(TooManyOpenFilesError, match="write the commit log"):
        put(store, b"refused")
    put(store, b"taken")
    assert bodies(store)[-1] == b"taken"
    assert len(bodies(store)) == 2
