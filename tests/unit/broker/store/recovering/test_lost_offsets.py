"""A flushed tail that is gone together with what would say which queue offsets were in it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.recovering import lost_offsets
from tests.support.killed_store import copy_killed
from tests.support.open_stores import Stores, bodies, flush, flush_derived_files, put

COUNT, LOST = 40, 10
QUEUES = {("TopicA", 0): 20, ("TopicA", 1): 20}
KEYS = "UNIQ_KEY\x01AB12\x02"


def killed(
    stores: Stores, tmp_path: Path, *, gone: tuple[str, ...], lost: int = LOST, keys: str = ""
) -> tuple[Path, int, int]:
    """A store killed with COUNT messages on disk, of which the last and *gone* went then."""
    store = stores.open(flush_disk_type=FlushDiskType.SYNC, commit_log_file_size_bytes=1 << 16)
    starts = [
        put(store, b"%d" % n, queue_id=n % 2, properties=keys).commit_log_offset
        for n in range(COUNT)
    ]
    flush(store)
    flush_derived_files(store)
    end = store.log.written_offset
    root = copy_killed(stores.root, tmp_path / "killed")
    start = [*starts, end][COUNT - lost] if lost < COUNT else 200
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    for name in gone:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return root, start, end


def again(stores: Stores, root: Path, told: Mapping[tuple[str, int], int]) -> MessageStore:
    return stores.open(
        root,
        flush_disk_type=FlushDiskType.SYNC,
        commit_log_file_size_bytes=1 << 16,
        known_offsets=lambda: told,
    )


INVENTORY = "rockhopper/inventory.json"
OWN_CHECKPOINT = "rockhopper/checkpoint"
BOTH = (INVENTORY, OWN_CHECKPOINT)


@pytest.mark.parametrize(
    ("gone", "told", "keys"),
    [
        pytest.param((), {}, "", id="queues"),
        pytest.param((INVENTORY,), {}, "", id="queues and inventory"),
        pytest.param((OWN_CHECKPOINT,), {}, KEYS, id="queues and checkpoint"),
        pytest.param(BOTH, {}, KEYS, id="all but the index"),
        pytest.param((*BOTH, "index"), QUEUES, "", id="all but what groups committed"),
    ],
)
def test_its_offsets_are_not_used_again(
    stores: Stores, tmp_path: Path, gone: tuple[str, ...], told: Any, keys: str
) -> None:
    root, start, _ = killed(stores, tmp_path, gone=("consumequeue", *gone), keys=keys)
    with capture_logs() as logs:
        store = again(stores, root, told)
    for queue_id in (0, 1):
        assert store.reading.queue_range("TopicA", queue_id)[1] >= COUNT // 2
    report = store.opened.report
    assert report.lost_tail is not None
    assert report.lost_tail.start == start
    assert [
        line for line in logs if "the flushed end of the commit log is missing" in line["event"]
    ]
    new = put(store, b"new")
    assert new.queue_offset >= COUNT // 2
    flush(store)
    assert bodies(store) == [b"%d" % n for n in range(0, COUNT - LOST, 2)] + [b"new"]
    ends = [store.reading.queue_range("TopicA", queue_id)[1] for queue_id in (0, 1)]
    anew = again(stores, copy_killed(root, tmp_path / "again"), {})
    assert [anew.reading.queue_range("TopicA", queue_id)[1] for queue_id in (0, 1)] == ends
    assert anew.opened.report.lost_tail is None


def test_what_the_inventory_noted_is_not_forgotten_for_it(stores: Stores, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"commit_log_file_size_bytes": 1 << 16}
    store = stores.open(**sizes)
    starts = [put(store, b"%d" % n, queue_id=n % 2).commit_log_offset for n in range(COUNT)]
    store = stores.reopen_after_stop(**sizes)
    put(store, b"short")
    flush(store)
    flush_derived_files(store)
    root = copy_killed(stores.root, tmp_path / "killed")
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(starts[10])
        file.write(bytes(store.log.written_offset - starts[10]))
    shutil.rmtree(root / "consumequeue")
    store = again(stores, root, {})
    assert store.reading.queue_range("TopicA", 0) == (0, COUNT // 2 + 1)
    assert store.reading.queue_range("TopicA", 1)[1] >= COUNT // 2


def test_units_tell_where_the_log_ended_when_nothing_else_does(
    stores: Stores, tmp_path: Path
) -> None:
    root, start, end = killed(stores, tmp_path, gone=(*BOTH, "index"))
    store = again(stores, root, {})
    tail = store.opened.report.lost_tail
    assert tail is not None
    assert (tail.start, tail.end) == (start, end)
    assert (
        store.reading.queue_range("TopicA", 0)
        == store.reading.queue_range("TopicA", 1)
        == (0, COUNT // 2)
    )


def test_a_queue_whose_messages_were_all_in_it_goes_on_behind_them(
    stores: Stores, tmp_path: Path
) -> None:
    root, _, _ = killed(stores, tmp_path, gone=("consumequeue", INVENTORY), lost=COUNT)
    store = again(stores, root, {("TopicA", 1): 0, ("TopicB", 0): 3})
    assert put(store, b"new", queue_id=1).queue_offset >= COUNT // 2
    assert put(store, b"new", "TopicB").queue_offset >= 3


def test_what_no_lost_byte_could_hold_is_not_believed(stores: Stores, tmp_path: Path) -> None:
    root, start, end = killed(stores, tmp_path, gone=("consumequeue", *BOTH, "index"))
    store = again(stores, root, {("TopicA", 0): 1 << 40, ("TopicA", 1): 20})
    most = (COUNT - LOST) // 2 + (end - start)
    assert COUNT // 2 <= store.reading.queue_range("TopicA", 1)[1] <= most
    assert store.reading.queue_range("TopicA", 0)[1] <= most


def test_what_groups_committed_moves_no_queue_of_a_sound_store(
    stores: Stores, tmp_path: Path
) -> None:
    root, _, end = killed(stores, tmp_path, gone=("consumequeue",), lost=0)
    store = again(stores, root, {("TopicA", 0): 25})
    assert store.log.written_offset == end
    assert store.reading.queue_range("TopicA", 0) == (0, COUNT // 2)


def test_a_store_of_rocketmq_believes_its_log(stores: Stores, tmp_path: Path) -> None:
    root, start, _ = killed(stores, tmp_path, gone=("consumequeue", "rockhopper", "index"))
    store = again(stores, root, QUEUES)
    assert store.reading.queue_range("TopicA", 0) == (0, (COUNT - LOST) // 2)
    assert store.log.written_offset == start


def test_what_leaving_out_all_would_cost_is_bounded(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_offsets, "UNITS_MAX", 4)
    root, _, _ = killed(stores, tmp_path, gone=("consumequeue",))
    with capture_logs() as logs:
        store = again(stores, root, {("TopicA", 0): 20})
    assert store.reading.queue_range("TopicA", 0) == (0, 20)
    assert store.reading.queue_range("TopicA", 1) == (0, 17)
    assert [line for line in logs if "may be used again" in line["event"]]
