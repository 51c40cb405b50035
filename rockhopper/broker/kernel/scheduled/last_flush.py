"""The flush that parts of the broker wait for when they stop: a clean stop repeats nothing.

No longer than ``TIMEOUT_S``: a disk that does not answer must not keep the broker from stopping.
"""

import asyncio
import contextlib

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore

TIMEOUT_S = 5.0


async def last_flush(store: MessageStore, end_offset: int) -> None:
    """Return when the log is durable up to *end_offset*, or will not be: the store must be open."""
    if store.failure is None:
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await store.flushed(end_offset)
