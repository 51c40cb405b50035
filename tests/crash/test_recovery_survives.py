"""Recovery may itself be cut short at any sync: the next one finds everything all the same."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.recovering import inventory
from tests.support.crashing_disk import CrashingDisk, PowerCutError
from tests.support.store_directories import T0, LogWriter, Recovered, recover


def assert_complete(store: Recovered, log: LogWriter, lost_offsets: set[int]) -> None:
    for (topic, queue_id), end in log.queue_ends.items():
        queue = store.queues.get(topic, queue_id)
        assert queue is not None
        assert queue.max_offset == end
    for record in log.written:
        body = store.bodies(record.topic, record.queue_id)[record.queue_offset]
        if record.offset in lost_offsets:
            assert body is None
        else:
            assert body == record.body
            assert record.offset in store.find(record.topic, record.key)


def tear_the_end(log: LogWriter) -> set[int]:
    log.overwrite(log.end, b"half of a record that was being written")
    return set()


def lose_queues_and_index(log: LogWriter) -> set[int]:
    shutil.rmtree(log.root / "consumequeue" / "TopicA")
    shutil.rmtree(log.root / "index")
    return set()


def damage_the_middle(log: LogWriter) -> set[int]:
    shutil.rmtree(log.root / "consumequeue")
    victims = (log.written[7], log.written[-1])
    for victim in victims:
        log.overwrite(victim.offset, bytes(50))
    return {victim.offset for victim in victims}


def add_undispatched(log: LogWriter) -> set[int]:
    log.append_many(15)
    log.overwrite(log.end, b"torn")
    return set()


@pytest.mark.parametrize(
    "accident", [tear_the_end, lose_queues_and_index, damage_the_middle, add_undispatched]
)
def test_a_power_cut_at_any_sync_of_recovery_costs_nothing(
    accident: Callable[[LogWriter], set[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogWriter(tmp_path / "template")
    log.append_many(30)
    recover(log.root).close()
    lost = accident(log)
    for syncs in itertools.count():
        root = tmp_path / f"store{syncs}"
        shutil.copytree(log.root, root)
        disk = CrashingDisk(root, monkeypatch)
        disk.cut_after(syncs)
        was_cut = False
        try:
            recover(root, clean=False)
        except PowerCutError:
            was_cut = True
        disk.crash()
        store = recover(root, clean=False)
        assert_complete(store, log, lost)
        if not was_cut:
            assert store.report.changed_queues == {}
            assert store.report.indexed_count == 0
            assert store.report.cut is None
        store.close()
        disk.close()
        shutil.rmtree(root)
        if not was_cut:
            assert syncs > 3
            break


def test_index_entries_that_were_flushed_survive_and_later_ones_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_index(clean: bool) -> MessageIndex:
        index = MessageIndex(tmp_path / "index", 4, 12, now_ms=lambda: T0)
        index.load(clean)
        return index

    (tmp_path / "index").mkdir()
    disk = CrashingDisk(tmp_path, monkeypatch)
    index = open_index(clean=True)
    expected: dict[int, list[int]] = {}
    for life in range(4):
        for number in range(10):
            offset = life * 100 + number
            index.put_many(INDEX_KEY.pack(number % 5, offset), T0 + offset)
            if number == 6:
                index.flush()
                end = offset
            if number <= 6:
                expected.setdefault(number % 5, []).append(offset)
        index.close()
        disk.crash()
        index = open_index(clean=False)
        assert index.end_commit_log_offset == end
        for key_hash, offsets in expected.items():
            found = [
                offset
                for file in reversed(index._files)
                for offset in file.candidates(key_hash, 0, 2**60)
            ]
            assert found == offsets[::-1]
    disk.close()


def test_the_inventory_is_the_former_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = StoreLayout(tmp_path)
    former = inventory.Inventory(100, 90, {("T", 0): 5})
    new = inventory.Inventory(200, 190, {("T", 0): 7, ("T", 1): 1}, ((10, 20),))
    inventory.save(layout, former)
    disk = CrashingDisk(tmp_path, monkeypatch)
    for syncs in itertools.count():
        disk.cut_after(syncs)
        try:
            inventory.save(layout, new)
        except PowerCutError:
            disk.crash()
            assert inventory.load(layout) in (former, new)
        else:
            disk.crash()
            assert inventory.load(layout) == new
            break
    assert syncs >= 2
    disk.close()
