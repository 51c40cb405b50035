"""The last flush, for which parts of the broker wait on shutdown: a clean restart repeats nothing.

It is limited to ``TIMEOUT_S``, because a disk that does not answer must not prevent the shutdown.
"""

import asyncio
import contextlib

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore

TIMEOUT_S = 5.0


async def last_flush(store: MessageStore, end_offset: int) -> None:
    """Return once the log is durable up to *end_offset*, or cannot be; the store must be open."""
    if store.failure is None:
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await store.safe_point.wait_for_disk(end_offset)
