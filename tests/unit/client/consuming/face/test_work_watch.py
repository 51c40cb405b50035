"""WorkWatch: a handler that takes long is logged with its message and age, once a minute."""

import asyncio

import pytest

from rockhopper.client import MessageQueue
from rockhopper.client.consuming.face.work_watch import WorkWatch
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage


async def test_a_handler_that_takes_long_is_logged_and_again_every_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = StoredMessage("orders", 0, 5, 100, b"x")
    message = ReceivedMessage(MessageQueue("orders", "a", 0), stored)
    watch = WorkWatch("billing")
    worker = asyncio.current_task()
    assert worker is not None
    watch.at_work[worker] = (message, 1000.0)
    for now_s in (1001.0, 1061.0, 1100.0, 1122.0):
        watch.report(now_s)
    assert len(caplog.records) == 2
    first, second = (each.getMessage() for each in caplog.records)
    assert "orders/a/0 offset 5" in first
    assert "for 61 s" in first
    assert "for 122 s" in second
    del watch.at_work[worker]
    watch.report(2000.0)
    watch.at_work[worker] = (message, 2000.0)  # it comes again
    watch.report(2030.0)
    assert len(caplog.records) == 2
