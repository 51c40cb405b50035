"""last_flush: a clean stop waits for the flush, and no disk keeps a broker from stopping."""

import asyncio
from pathlib import Path

import pytest

from rockhopper.broker.kernel.scheduled import last_flush as module
from rockhopper.broker.kernel.scheduled.last_flush import last_flush
from rockhopper.broker.store.files.errors import StoreFailedError
from tests.support.open_stores import Stores, flush, put


async def test_it_returns_when_the_log_is_durable_so_far(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    store = stores.open()
    end = put(store).end_offset
    waiting = asyncio.ensure_future(last_flush(store, end))
    await asyncio.sleep(0)
    assert not waiting.done()
    flush(store)
    await waiting
    await store.close()


async def test_a_disk_that_does_not_answer_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.0)
    stores = Stores(tmp_path)
    store = stores.open()
    await last_flush(store, put(store).end_offset)
    await store.close()


async def test_a_store_that_has_failed_is_not_waited_for(tmp_path: Path) -> None:
    store = Stores(tmp_path).open()
    end = put(store).end_offset
    store.failure = StoreFailedError("the disk is gone")
    await last_flush(store, end)
    store.failure = None
    await store.close()
