"""Listeners and waiting readers of a store that record each notification."""

from collections.abc import Callable, Set
from typing import Any

from rockhopper.broker.store.files.errors import StoreFailedError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.queue_tail import QueueTail, Waiters
from rockhopper.broker.store.safe_point import StoreListener


class NotedFailures(StoreListener):
    """The errors with which a store failed."""

    def __init__(self, store: MessageStore) -> None:
        self.errors: list[StoreFailedError] = []
        store.listeners.add(self)

    def store_failed(self, error: StoreFailedError) -> None:
        self.errors.append(error)


class Reader(Waiters):
    """One reader that waits for a queue for ever."""

    def __init__(self, arrived: Callable[[QueueTail, int, Set[int]], Any]) -> None:
        super().__init__({object(): None})
        self._arrived = arrived

    def arrived(self, tail: QueueTail, max_offset: int, tags_codes: Set[int]) -> None:
        self._arrived(tail, max_offset, tags_codes)
