"""The inventory: written and read, damage noticed, what is gone remembered."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.inventory import Inventory
from tests.support.store_directories import LogWriter, recover


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    return StoreLayout(tmp_path)


def never(topic: str, offset: int) -> bool:
    return False


def test_a_store_without_an_inventory_has_none(layout: StoreLayout) -> None:
    assert inventory.load(layout) is None


@pytest.mark.parametrize("index_end", [None, -1, 4500])
def test_load_returns_what_save_wrote(index_end: int | None, layout: StoreLayout) -> None:
    saved = Inventory(
        4711, index_end, {("A", 0): 5, ("A", 7): 1, ("%RETRY%g", 0): 2**40}, ((1, 5), (9, 10))
    )
    inventory.save(layout, saved)
    assert inventory.load(layout) == saved


def test_every_flipped_bit_is_noticed(layout: StoreLayout) -> None:
    inventory.save(layout, Inventory(4711, 4500, {("A", 0): 5}))
    path = layout.own / inventory.INVENTORY_FILE
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        # The line break at the very end says nothing.
        assert inventory.load(layout) is None or position == len(content) - 1


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{}\n00000000\n", b"\xff\n\n"])
def test_nonsense_counts_as_no_inventory(content: bytes, layout: StoreLayout) -> None:
    layout.own.mkdir()
    (layout.own / inventory.INVENTORY_FILE).write_bytes(content)
    assert inventory.load(layout) is None


def test_holes_are_half_open_ranges() -> None:
    noted = Inventory(100, -1, {}, ((10, 20), (30, 31)))
    assert [noted.is_in_hole(offset) for offset in (9, 10, 19, 20, 30, 31)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_a_clean_stop_keeps_what_is_no_longer_on_disk(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.append_many(4)
    store = recover(tmp_path)
    former = Inventory(10, -1, {("Gone", 0): 9, ("Deleted", 0): 3, ("TopicA", 0): 0}, ((2, 3),))
    inventory.save(store.layout, former)
    inventory.save_at_stop(
        store.layout,
        log.end,
        store.queues,
        store.index,
        lambda topic, offset: topic == "Deleted" and offset == 9,
    )
    saved = inventory.load(store.layout)
    assert saved is not None
    assert saved.log_end == log.end
    assert saved.holes == ((2, 3),)
    assert saved.queue_ends == {
        ("Gone", 0): 9,
        ("TopicA", 0): 1,
        ("TopicA", 1): 1,
        ("TopicB", 0): 1,
        ("TopicB", 1): 1,
    }
