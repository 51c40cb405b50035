"""Queues on hold, deleted topics and purged ones: what of them is shown, and what comes back."""

import errno
from collections.abc import Set
from unittest import mock

import pytest

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.queue_tail import QueueTail
from tests.support.open_stores import Stores, bodies, flush, put
from tests.support.store_listeners import Reader


def hold(store: MessageStore, topic: str = "TopicA", queue_id: int = 0) -> None:
    store.visibility.hold(store.staging.tail(topic, queue_id))


def put_all(store: MessageStore, *messages: bytes, topic: str = "TopicA") -> None:
    for body in messages:
        put(store, body, topic)


def test_what_comes_into_a_queue_on_hold_is_stored_and_shown_to_nobody(stores: Stores) -> None:
    store = stores.open()
    put_all(store, b"0")
    hold(store)
    assert [put(store, b"%d" % number).queue_offset for number in (1, 2)] == [1, 2]
    put(store, b"elsewhere", queue_id=1)
    assert store.reading.queue_range("TopicA", 0) == (0, 1)
    assert bodies(store) == [b"0"]
    assert bodies(store, queue_id=1) == [b"elsewhere"]
    store.visibility.release()
    assert store.reading.queue_range("TopicA", 0) == (0, 3)
    assert bodies(store) == [b"0", b"1", b"2"]


def test_who_waits_is_told_at_the_release_and_once(stores: Stores) -> None:
    store = stores.open()
    told: list[tuple[str, int, Set[int]]] = []

    def tell(tail: QueueTail, offset: int, codes: Set[int]) -> None:
        told.append((tail.topic, offset, codes))

    for topic in ("TopicA", "TopicB"):
        store.staging.tail(topic, 0).waiters = Reader(tell)
        hold(store, topic)
    put_all(store, b"0", b"1")
    assert told == []
    store.visibility.release()
    assert told == [("TopicA", 2, {0})]
    put_all(store, b"2")
    assert told[1:] == [("TopicA", 3, {0})]


def test_a_kill_ends_every_hold(stores: Stores) -> None:
    store = stores.open()
    hold(store)
    put_all(store, b"0", b"1")
    assert bodies(stores.reopen_after_kill()) == [b"0", b"1"]


def test_deleted_topics_are_forgotten_before_their_files_are_removed(stores: Stores) -> None:
    store = stores.open()
    for topic in ("TopicA", "TopicB", "TopicC", "TopicD"):
        put_all(store, b"old", topic=topic)
    deleted = store.visibility.delete_topics(["TopicA", "TopicB", "TopicD"])
    for topic in ("TopicA", "TopicB"):
        assert store.reading.queue_range(topic, 0) == (0, 0)
        assert put(store, b"new", topic).queue_offset == 0
    deleted.remove()
    for opened in (store, stores.reopen_after_kill()):
        assert bodies(opened, "TopicA") == bodies(opened, "TopicB") == [b"new"]
        assert bodies(opened, "TopicC") == [b"old"]
        assert opened.reading.queue_range("TopicD", 0) == (0, 0)


def test_a_topic_that_was_deleted_on_hold_is_not_released(stores: Stores) -> None:
    store = stores.open()
    hold(store)
    put_all(store, b"gone")
    store.visibility.delete_topics(["TopicA"]).remove()
    store.visibility.release()
    assert store.reading.queue_range("TopicA", 0) == (0, 0)
    put_all(store, b"new")
    assert bodies(store) == [b"new"]


def test_a_deletion_that_cannot_be_noted_forgets_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under SYNC_FLUSH what waits for the disk is dispatched later, to the tail that it was put in.
    store = stores.open(flush_disk_type=FlushDiskType.SYNC)
    put_all(store, b"0")
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "append_whole", mock.Mock(side_effect=full))
        with pytest.raises(OSError, match="No space"):
            store.visibility.delete_topics(["TopicA"])
    put_all(store, b"1")
    flush(store)
    assert bodies(store) == [b"0", b"1"]


def test_purged_topics_keep_their_offsets_and_what_comes_later(stores: Stores) -> None:
    store = stores.open()
    put_all(store, b"0", b"1")
    put(store, b"0", queue_id=1)
    put_all(store, b"0", topic="TopicB")
    put_all(store, b"stays", topic="TopicC")
    assert store.visibility.purge_topics(["TopicA", "TopicB", "Unknown"]) == 4
    assert store.visibility.purge_topics(["TopicA", "TopicB"]) == 0
    assert store.reading.queue_range("TopicA", 0) == (2, 2)
    assert put(store, b"2").queue_offset == 2
    for opened in (store, stores.reopen_after_kill()):
        assert bodies(opened, offset=2) == [b"2"]
        assert opened.reading.queue_range("TopicA", 0) == (2, 3)
        assert (
            opened.reading.queue_range("TopicA", 1)
            == opened.reading.queue_range("TopicB", 0)
            == (1, 1)
        )
        assert bodies(opened, "TopicC") == [b"stays"]


def test_a_purge_leaves_what_a_hold_keeps_from_consumers(stores: Stores) -> None:
    store = stores.open()
    put_all(store, b"seen")
    hold(store)
    put_all(store, b"held")
    put_all(store, b"0", b"1", topic="TopicB")
    assert store.visibility.purge_topics(["TopicA", "TopicB"]) == 3
    assert store.reading.queue_range("TopicB", 0) == (2, 2)
    store.visibility.release()
    for opened in (store, stores.reopen_after_kill()):
        assert opened.reading.queue_range("TopicA", 0) == (1, 2)
        assert bodies(opened, offset=1) == [b"held"]
        assert opened.reading.queue_range("TopicB", 0) == (2, 2)


def test_a_hold_counts_from_its_first_queue_on_and_until_the_release(stores: Stores) -> None:
    store = stores.open()
    hold(store)
    put_all(store, b"0")
    hold(store, queue_id=1)
    put(store, b"0", queue_id=1)
    assert store.visibility.purge_topics(["TopicA"]) == 0
    store.visibility.release()
    assert store.visibility.purge_topics(["TopicA"]) == 2
    put_all(store, b"1")
    hold(store)
    put_all(store, b"2")
    assert store.visibility.purge_topics(["TopicA"]) == 1
    store.visibility.release()
    assert bodies(store, offset=2) == [b"2"]


@pytest.mark.parametrize("is_held", [True, False])
def test_a_purge_leaves_what_is_not_on_disk_and_in_no_queue_yet(
    stores: Stores, is_held: bool
) -> None:
    store = stores.open(flush_disk_type=FlushDiskType.SYNC)
    put_all(store, b"0")
    flush(store)
    put_all(store, b"1")
    if is_held:
        hold(store)
    assert store.visibility.purge_topics(["TopicA"]) == 1
    flush(store)
    store.visibility.release()
    for opened in (store, stores.reopen_after_kill()):
        assert opened.reading.queue_range("TopicA", 0) == (1, 2)
        assert bodies(opened, offset=1) == [b"1"]
