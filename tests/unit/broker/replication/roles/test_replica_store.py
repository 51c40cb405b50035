"""The store as replication sees it: while it is open, while it is away, and cut."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.replication.roles.replica_store import ReplicaStore
from rockhopper.broker.replication.shipping.replica_log import AwayError
from rockhopper.broker.settings.store_config import FlushDiskType, StoreConfig
from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_stores import FILE_SIZE_BYTES, SIZES, Stores, fill, store_config


class Owner:
    def __init__(self) -> None:
        self.asked: list[tuple[int | None, int | None]] = []

    async def reopen(self, *, cut_at: int | None = None, begin_at: int | None = None) -> None:
        self.asked.append((cut_at, begin_at))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    opened = Stores(tmp_path)
    yield opened
    opened.close_all()


@pytest.fixture
def master(stores: Stores) -> MessageStore:
    store = stores.open(stores.root.parent / "master")
    fill(store, 40, 150)
    return store


def config_of(**fields: Any) -> StoreConfig:
    return store_config(Path("unused"), **{**SIZES, **fields})


def copied(store: MessageStore, **fields: Any) -> ReplicaStore:
    found = ReplicaStore(config_of(**fields), Owner())
    found.opened(store)
    return found


def test_a_log_goes_over_file_by_file(stores: Stores, master: MessageStore) -> None:
    theirs, ours = copied(master), copied(stores.open())
    while data := theirs.read(ours.next_offset, 1000):
        assert len(data) <= FILE_SIZE_BYTES
        ours.append(ours.next_offset, data)
    assert ours.end_offset == ours.acknowledgeable_offset == theirs.end_offset


def test_half_a_record_is_not_held_and_can_be_dropped(stores: Stores, master: MessageStore) -> None:
    theirs, ours = copied(master), copied(stores.open())
    ours.append(0, theirs.read(0, 50))
    assert (ours.end_offset, ours.next_offset) == (0, 50)
    ours.drop_torn()
    assert ours.next_offset == 0


def test_under_sync_flush_only_what_is_on_disk_is_held(
    stores: Stores, master: MessageStore
) -> None:
    sync: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC}
    theirs, store = copied(master), stores.open(**sync)
    ours = copied(store, **sync)
    ours.append(0, theirs.read(0, 1000))
    assert ours.acknowledgeable_offset < ours.end_offset
    store.flush_now()
    assert ours.acknowledgeable_offset == ours.end_offset


def test_while_it_is_away_the_ends_are_known_and_nothing_is_taken(
    stores: Stores, master: MessageStore
) -> None:
    ours = copied(master)
    end = ours.end_offset
    ours.closing()
    assert (ours.start_offset, ours.end_offset, ours.next_offset) == (0, end, end)
    assert ours.is_away
    assert ours.read(0, 100) == b""
    with pytest.raises(AwayError):
        ours.append(end, b"more")


def test_a_master_takes_no_bytes_of_another(master: MessageStore) -> None:
    ours = copied(master)
    assert not ours.is_away
    ours.is_following = False
    assert ours.is_away
    with pytest.raises(AwayError):
        ours.append(ours.end_offset, b"more")


async def test_cutting_and_beginning_anew_are_done_while_it_is_closed() -> None:
    owner = Owner()
    store = ReplicaStore(config_of(), owner)
    await store.cut(17)
    await store.begin_at(0)
    assert owner.asked == [(17, None), (None, 0)]
