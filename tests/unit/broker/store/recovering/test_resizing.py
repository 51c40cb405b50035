"""Files of another size than the others: repaired, the original kept aside, nothing else lost."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.recovering import inventory, resizing
from rockhopper.broker.store.recovering.resizing import FoundFile, common_size
from tests.support.golden_stores import copy_golden_store
from tests.support.killed_store import copy_killed
from tests.support.open_stores import Stores, bodies, messages, put
from tests.support.store_directories import queue_files

COUNT = 150


def fill(stores: Stores) -> Path:
    """A store of several log files and three files in each of two queues, stopped cleanly."""
    store = stores.open()
    for number in range(COUNT * 2):
        put(store, b"%d" % (number // 2), queue_id=number % 2)
    stores.close_all()
    stores.opened.clear()
    return stores.root


def log_file(root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def queue_file(root: Path, number: int) -> Path:
    return sorted((root / "consumequeue/TopicA/0").iterdir())[number]


def cut(path: Path, size_bytes: int) -> bytes:
    """Cut or lengthen a file; return what it holds then."""
    data = path.read_bytes()
    path.write_bytes(data[:size_bytes].ljust(size_bytes, b"?"))
    return path.read_bytes()


@pytest.mark.parametrize("size_bytes", [4095, 2000, 5000])
@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_log_file_of_another_size_costs_what_it_lost(
    stores: Stores, number: int, size_bytes: int
) -> None:
    path = log_file(fill(stores), number)
    held = cut(path, size_bytes)
    again = stores.open()
    assert path.stat().st_size == 4096
    assert path.read_bytes()[:2000] == held[:2000]
    assert (stores.root / "rockhopper/quarantine/commitlog" / path.name).read_bytes() == held
    found = {message.queue_offset: message.body for message in messages(again)}
    assert all(body == b"%d" % offset for offset, body in found.items())
    # A file holds some 15 messages of each queue.
    assert len(found) >= (COUNT if size_bytes > 4096 else COUNT - 15)
    assert again.reading.queue_range("TopicA", 0) == (0, COUNT)
    assert put(again).queue_offset == COUNT


@pytest.mark.parametrize("size_bytes", [980, 1, 1007])
@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_queue_file_of_another_size_costs_nothing(
    stores: Stores, tmp_path: Path, is_clean: bool, number: int, size_bytes: int
) -> None:
    root = fill(stores)
    whole = queue_files(root)
    if not is_clean:
        stores.open()
        root = copy_killed(root, tmp_path / "killed")
    held = cut(queue_file(root, number), size_bytes)
    again = stores.open(root)
    assert bodies(again) == [b"%d" % n for n in range(COUNT)]
    assert queue_files(root) == whole
    kept = root / "rockhopper/quarantine/consumequeue/TopicA/0" / queue_file(root, number).name
    assert kept.read_bytes() == held
    assert not (root / "rockhopper/resized-queues").exists()


def test_the_only_queue_file_of_a_store_gets_its_size_back(stores: Stores) -> None:
    store = stores.open()
    put(store)
    put(store, b"second")
    stores.reopen_after_stop()
    stores.close_all()
    path = queue_file(stores.root, 0)
    cut(path, 25)
    again = stores.open()
    assert bodies(again) == [b"hello", b"second"]
    assert path.stat().st_size == 1000


@pytest.mark.parametrize("size_bytes", [3000, 0])
def test_the_only_log_file_of_a_store_gets_its_size_back(stores: Stores, size_bytes: int) -> None:
    store = stores.open()
    for number in range(20):
        put(store, b"%d" % number)
    stores.close_all()
    cut(log_file(stores.root, 0), size_bytes)
    if size_bytes == 0:
        with pytest.raises(CorruptFileError, match="nothing but zeros"):
            stores.open()
        return
    again = stores.open()
    assert log_file(stores.root, 0).stat().st_size == 4096
    assert put(again).queue_offset == 20


def test_an_empty_file_in_the_middle_is_a_hole(stores: Stores) -> None:
    path = log_file(fill(stores), 2)
    cut(path, 0)
    again = stores.open()
    assert path.stat().st_size == 4096
    assert again.reading.queue_range("TopicA", 0) == (0, COUNT)
    assert len(bodies(again)) > COUNT - 23


def test_an_apache_store_is_repaired_alike(stores: Stores, tmp_path: Path) -> None:
    root = copy_golden_store("basic30", tmp_path / "store")
    whole = queue_files(root)
    path = next((root / "consumequeue/TopicA/0").iterdir())
    cut(path, 111)
    stores.open(root, index_entry_count_max=40)
    assert queue_files(root) == whole


class CutOffError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("what", [log_file, queue_file])
@pytest.mark.parametrize("step", ["copy_aside", "set_size", "after"])
def test_a_repair_that_was_cut_off_is_finished_by_the_next_start(
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    what: Callable[[Path, int], Path],
    step: str,
) -> None:
    path = what(fill(stores), 1)
    held = cut(path, path.stat().st_size - 345)

    def cut_off(*_: object, **__: object) -> None:
        raise CutOffError

    with monkeypatch.context() as failing:
        if step == "after":
            failing.setattr("rockhopper.broker.store.opening.recover", cut_off)
        else:
            failing.setattr(disk, step, cut_off)
        with pytest.raises(CutOffError):
            stores.open()
    (stores.root / "abort").write_text(str(os.getpid()))
    again = stores.open()
    lost_max = 15 if what is log_file else 0
    assert len(bodies(again)) >= COUNT - lost_max
    kept = list((stores.root / "rockhopper/quarantine").rglob(path.name + "*"))
    assert [file.read_bytes() for file in kept] == [held]


def test_no_room_for_the_copy_leaves_every_file_as_it_was(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_file(fill(stores), 1)
    held = cut(path, 4000)

    def no_room(*_: object) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(disk, "write_fully", no_room)
    with pytest.raises(OSError, match="no room"):
        stores.open()
    assert path.read_bytes() == held


@pytest.mark.parametrize(
    ("sizes", "noted", "configured", "right"),
    [
        ([4096, 3000], 0, 8192, 4096),
        ([3000, 4096], 0, 8192, 4096),
        ([3000], 0, 4096, 3000),
        ([3000], 4096, 1024, 4096),
        ([5000, 5000], 0, 4096, 4096),
        ([4096, 4096, 4096], 1024, 1024, 4096),
        ([], 0, 4096, 4096),
        ([3000, 5000], 0, 3000, None),
    ],
)
def test_the_right_size_is_found(
    sizes: list[int], noted: int, configured: int, right: int | None
) -> None:
    found = [FoundFile(number * 4096, size, Path("x")) for number, size in enumerate(sizes)]
    assert common_size(found, 1, noted, configured) == right


def test_sizes_are_noted(stores: Stores) -> None:
    layout = stores.open().opened.layout
    noted = inventory.load(layout)
    assert noted is not None
    assert noted.file_sizes == (4096, 1000, 920)
    assert resizing.list_resized_before(layout) == set()
