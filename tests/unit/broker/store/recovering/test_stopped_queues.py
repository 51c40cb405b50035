"""After a clean stop the queues are not read, unless anything has changed since."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.recovering import inventory
from tests.support.crashing_disk import CrashingDisk, PowerCutError
from tests.support.killed_store import copy_killed
from tests.support.open_stores import Stores, flush_derived_files, put

NOTE = f"rockhopper/{inventory.QUEUES_FILE}"
FIRST = "00000000000000000000"
MESSAGES = {("TopicA", 0): 3, ("TopicA", 1): 1, ("TopicB", 7): 60, ("Batch", 0): 2}


@pytest.fixture(params=["compiled", "python"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(inventory, "digest_files", inventory.digest_files_in_python)
    elif disk.COMPILED is None:
        pytest.skip("it is not compiled")


def fill(store: MessageStore) -> None:
    for (topic, queue_id), count in MESSAGES.items():
        for number in range(count):
            put(store, b"%d" % number, topic, queue_id)


async def stop(stores: Stores) -> Path:
    store = stores.open(batch_topics=["Batch"])
    fill(store)
    await close(stores, store)
    return stores.root


async def close(stores: Stores, store: MessageStore) -> None:
    del stores.opened[store.opened.layout.root]
    await store.close()


def reopen(stores: Stores, root: Path) -> MessageStore:
    return stores.open(root, batch_topics=["Batch"])


def restored(store: MessageStore) -> set[tuple[str, int]]:
    return {(each.topic, each.queue_id) for each in store.opened.queues if each.is_restored}


def assert_complete(store: MessageStore, more: int = 0) -> None:
    for (topic, queue_id), count in MESSAGES.items():
        queue = store.opened.queues.get(topic, queue_id)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (0, count + more)
        for offset in range(count + more):
            assert queue.entry(offset) is not None


async def test_short_queues_are_taken_over_and_go_on(stores: Stores, tmp_path: Path) -> None:
    root = await stop(stores)
    store = reopen(stores, root)
    assert restored(store) == {("TopicA", 0), ("TopicA", 1)}
    assert_complete(store)
    assert store.opened.report.changed_queues == {}
    for topic, queue_id in MESSAGES:
        assert put(store, b"more", topic, queue_id).queue_offset == MESSAGES[topic, queue_id]
    assert_complete(store, 1)
    killed = copy_killed(root, tmp_path / "killed")
    await close(stores, store)
    again = reopen(stores, root)
    assert restored(again) == {("TopicA", 0), ("TopicA", 1)}
    assert_complete(again, 1)
    recovered = reopen(stores, killed)
    assert restored(recovered) == set()
    assert_complete(recovered, 1)


def unit_edited(root: Path) -> None:
    path = root / "consumequeue/TopicA/0" / FIRST
    with path.open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))


def log_edited(root: Path) -> None:
    path = root / "commitlog" / FIRST
    with path.open("r+b") as file:
        file.write(file.read(1))


def opened_by_another(root: Path) -> None:
    (root / "lock").write_bytes(b"lock")


def note_cut(root: Path) -> None:
    data = (root / NOTE).read_bytes()
    (root / NOTE).write_bytes(data[: len(data) // 2])


def note_flipped(root: Path) -> None:
    data = bytearray((root / NOTE).read_bytes())
    data[len(data) // 2] ^= 1
    (root / NOTE).write_bytes(data)


CHANGES: list[Callable[[Path], object]] = [
    unit_edited,
    log_edited,
    opened_by_another,
    note_cut,
    note_flipped,
    lambda root: (root / NOTE).unlink(),
    lambda root: (root / NOTE).write_bytes(b""),
    lambda root: (root / "abort").touch(),
    lambda root: shutil.rmtree(root / "consumequeue"),
    lambda root: shutil.rmtree(root / "batchconsumequeue"),
    lambda root: shutil.rmtree(root / "consumequeue/TopicA"),
    lambda root: shutil.rmtree(root / "consumequeue/TopicA/1"),
    lambda root: (root / "consumequeue/TopicA/1" / FIRST).unlink(),
    lambda root: (root / "consumequeue/TopicB/7" / FIRST).unlink(),
    lambda root: os.utime(root / "consumequeue/TopicA/1" / FIRST),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
async def test_after_any_change_the_queues_are_read_and_repaired(
    stores: Stores, number: int
) -> None:
    root = await stop(stores)
    CHANGES[number](root)
    store = reopen(stores, root)
    assert restored(store) == set()
    assert_complete(store)


async def test_a_queue_that_was_gone_at_the_stop_is_rebuilt(stores: Stores) -> None:
    store = reopen(stores, stores.root)
    fill(store)
    flush_derived_files(store)
    shutil.rmtree(stores.root / "consumequeue/TopicA/1")
    await close(stores, store)
    again = reopen(stores, stores.root)
    assert restored(again) == set()
    assert_complete(again)


async def test_a_copy_is_read(stores: Stores, tmp_path: Path) -> None:
    root = await stop(stores)
    shutil.copytree(root, tmp_path / "copy")
    store = reopen(stores, tmp_path / "copy")
    assert restored(store) == set()
    assert_complete(store)


async def test_other_file_sizes_in_the_settings_have_the_queues_read(stores: Stores) -> None:
    root = await stop(stores)
    store = stores.open(root, batch_topics=["Batch"], consume_queue_file_size_bytes=20 * 60)
    assert restored(store) == set()
    assert_complete(store)


async def test_a_log_that_is_cut_has_the_queues_read(stores: Stores) -> None:
    root = await stop(stores)
    store = stores.open(root, batch_topics=["Batch"], cut_at=0)
    assert [(each.topic, each.max_offset) for each in store.opened.queues if each.has_files] == []


async def test_a_full_disk_at_the_stop_costs_only_time(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = disk.write_atomically

    def refuse(path: Path, data: bytes, backup: bytes | None = None, **rest: int) -> None:
        if path.name == inventory.QUEUES_FILE:
            raise OSError(28, "No space left on device")
        write(path, data, backup, **rest)

    monkeypatch.setattr(disk, "write_atomically", refuse)
    root = await stop(stores)
    assert not (root / "abort").exists()
    store = reopen(stores, root)
    assert restored(store) == set()
    assert_complete(store)


async def test_a_power_cut_at_any_sync_of_the_stop_costs_nothing(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for syncs in itertools.count():
        root = tmp_path / f"store-{syncs}"
        store = reopen(stores, root)
        fill(store)
        store.flush_now()
        crashing = CrashingDisk(root, monkeypatch)
        crashing.cut_after(syncs)
        was_cut = False
        try:
            await close(stores, store)
        except PowerCutError:
            was_cut = True
            store.abandon()
        crashing.crash()
        crashing.close()
        monkeypatch.undo()
        if not (root / "abort").exists():
            # A start that trusts the note finds what it says: all of it was synced.
            units = (root / "consumequeue/TopicA/0" / FIRST).read_bytes()[: 20 * 3]
            assert all(units[at : at + 20].strip(b"\0") for at in (0, 20, 40))
        again = reopen(stores, root)
        assert_complete(again)
        await close(stores, again)
        if not was_cut:
            assert syncs > 5
            return


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.sampled_from(["", "/x"]))
def test_the_digest_in_python_is_the_compiled_one(sizes: list[int], suffix: str) -> None:
    if disk.COMPILED is None:
        pytest.skip("it is not compiled")
    digests = set()
    paths = [f"/proc/self/fd/{number}" for number in sizes]
    for each in (paths, [*paths, "/"], [*paths, "/missing"], ["/" + "x" * 5000], ["a\0b"]):
        try:
            compiled = disk.COMPILED.digest_files(each, suffix)
        except ValueError:
            compiled = None
        assert compiled == inventory.digest_files_in_python(each, suffix)
        digests.add(compiled)
    assert None in digests


async def test_a_start_claims_no_later_message_than_the_stop(stores: Stores) -> None:
    root = await stop(stores)
    newest_ms = 0
    for _ in range(3):
        stores.clock.advance(1000)
        store = reopen(stores, root)
        assert restored(store) == {("TopicA", 0), ("TopicA", 1)}
        newest_ms = newest_ms or store.opened.report.last_store_time_ms
        assert newest_ms < stores.clock.now_ms
        assert store.opened.report.last_store_time_ms == newest_ms
        assert store.opened.checkpoint.commit_log_ms == newest_ms
        store.staging.read_clock()
        assert store.log.store_time_ms == stores.clock.now_ms
        await close(stores, store)
