"""The exit code that serving ends with."""

import asyncio
import errno
import os
import signal
from collections.abc import Iterator

import pytest

from rockhopper.broker import Broker
from rockhopper.broker import cli as daemon
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import LoadedConfig
from rockhopper.broker.store.files.errors import StoreFailedError

LOADED = LoadedConfig(BrokerConfig(), [], [])


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Restore the handlers: uvloop's stay installed when its loop is closed, and ignore signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def serve(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> "asyncio.Task[int]":
    """Serve *broker* as the daemon does; returns once it does."""
    started = asyncio.Event()
    real = broker.start

    async def start() -> None:
        await real()
        started.set()

    monkeypatch.setattr(broker, "start", start)
    monkeypatch.setattr(daemon, "_make_service", lambda *_: broker)
    task = asyncio.create_task(daemon.serve(LOADED))
    await started.wait()
    return task


async def test_a_broker_that_was_asked_to_stop_ends_the_process_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = await serve(Broker.temporary(), monkeypatch)
    os.kill(os.getpid(), 15)
    assert await task == 0


async def test_a_store_that_fails_ends_the_process_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker.temporary()
    task = await serve(broker, monkeypatch)
    broker.store_failed(StoreFailedError("the disk did not keep what it was given"))
    assert await task == 1


async def test_tables_that_cannot_be_saved_at_the_end_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker.temporary()
    task = await serve(broker, monkeypatch)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await broker.tables.topics.saved()
    monkeypatch.setattr("rockhopper.broker.kernel.tables.json_table.write_atomically", full)
    broker.tables.topics.ensure_retry_topic("billing")
    os.kill(os.getpid(), 15)
    assert await task == 1
