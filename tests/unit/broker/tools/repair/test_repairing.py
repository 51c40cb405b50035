"""Every sound record is in the new store, at its place; what is lost is told."""

import errno
import json
from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.table_seal import seal
from rockhopper.broker.store.files import disk
from rockhopper.broker.tools.dumping import DumpSelection, dump
from rockhopper.broker.tools.repair.repairing import FILLER_TOPIC, Lost, filling
from rockhopper.broker.tools.store_view import StoreView
from tests.support import apache_golden, open_stores
from tests.support.rot import flip_bit, overwrite
from tests.support.tool_stores import checked, run


def _messages(root: Path, config: Path | None = None) -> list[dict[str, object]]:
    found = dump(StoreView(root, config), DumpSelection())
    return [each for each in found if each["topic"] != FILLER_TOPIC and "error" not in each]


@pytest.fixture
def damaged(root: Path) -> Path:
    """A store with a damaged body, two heads in a row, one at a file's begin, one at its end."""
    log = root / "commitlog" / f"{0:020d}"
    flip_bit(log, log.read_bytes().index(b"body 3"))
    view = StoreView(root)
    records = [record for record, _ in view.records()]
    last_of_file = max(r.offset for r in records if r.offset < 4096)
    for offset in (records[10].offset, records[11].offset, 4096, last_of_file):
        path = root / "commitlog" / f"{offset - offset % 4096:020d}"
        overwrite(path, offset % 4096, b"\xff" * 8)
    return root


def test_sound_records_keep_place_and_number(damaged: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    kept = _messages(damaged)
    new = tmp_path / "new"
    ended = run("repair", damaged, "--into", new, "--report", tmp_path / "report.json", "--write")
    assert ended.code == 0
    assert {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()} == before
    assert _messages(new) == kept
    assert len(kept) == 55
    assert checked(new).damages == []
    report = json.loads((tmp_path / "report.json").read_text())
    lost = [(m["topic"], m["queueOffset"]) for each in report["lost"] for m in each["messages"]]
    assert len(lost) == 5
    assert lost.count(("Topic1", 0)) == 2
    store = open_stores.open_store(new)
    found = {message.queue_offset for message in open_stores.messages(store, "Topic1", 0)}
    assert found < set(range(8))
    assert open_stores.put(store, b"next", "Topic1", 0).queue_offset == 8
    open_stores.close(store)


def test_a_report_is_written_with_the_store_alone(damaged: Path, tmp_path: Path) -> None:
    new, report = tmp_path / "new", tmp_path / "report.json"
    assert run("repair", damaged, "--into", new, "--report", report).code == 0
    assert not report.exists()
    for nowhere in (tmp_path / "missing" / "report.json", tmp_path):
        ended = run("repair", damaged, "--into", new, "--report", nowhere, "--write")
        assert (ended.code, f"{nowhere} cannot be written" in ended.err) == (1, True)
        assert not new.exists()


def test_missing_files_become_blank_ones(root: Path, tmp_path: Path) -> None:
    (root / "commitlog" / f"{4096:020d}").unlink()
    kept = _messages(root)
    assert run("repair", root, "--into", tmp_path / "new", "--write").code == 0
    assert _messages(tmp_path / "new") == kept
    assert checked(tmp_path / "new").damages == []


def test_stores_of_apaches_broker_too(tmp_path: Path) -> None:
    store = apache_golden.unpack("batch", tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in store.geometry.items()))
    kept = _messages(store.path, config)
    assert run("repair", store.path, "--into", tmp_path / "new", "--write", "-c", config).code == 0
    assert _messages(tmp_path / "new", config) == kept
    assert checked(tmp_path / "new", config).damages == []


def test_a_place_that_is_taken_is_refused(root: Path, tmp_path: Path) -> None:
    assert "is not empty" in run("repair", root, "--into", tmp_path, "--write").err
    assert "inside the store" in run("repair", root, "--into", root / "new", "--write").err
    assert not (root / "new").exists()


def test_nothing_is_written_without_write(damaged: Path, tmp_path: Path) -> None:
    ended = run("repair", damaged, "--into", tmp_path / "new")
    assert "5 places" in ended.out or "4 places" in ended.out
    assert "add --write" in ended.out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("size", [91, 92, 500, (2 << 20) + 300])
def test_fillers_are_records_of_exactly_that_size(size: int) -> None:
    lost = Lost(4096, size, "", 1, [])
    data = filling(4096, 4096 + size, 1 << 30, lost)
    assert len(data) == size
    assert len(filling(4096, 4096 + size, 4096 + size, lost)) == size


def test_a_repair_that_was_cut_off_begins_again(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    new = tmp_path / "new"
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_fully", full)
        ended = run("repair", damaged, "--into", new, "--write")
    assert (ended.code, "not a complete store yet" in ended.err) == (1, True)
    assert run("repair", damaged, "--into", new, "--write").code == 0
    assert _messages(new) == _messages(damaged)


def test_a_lost_message_between_those_of_its_queue_leaves_no_damage(tmp_path: Path) -> None:
    root, new = tmp_path / "store", tmp_path / "new"
    store = open_stores.open_store(root)
    placed = [open_stores.put(store, b"the same size", "Orders") for _ in range(3)]
    open_stores.close(store)
    overwrite(root / "commitlog" / f"{0:020d}", placed[1].commit_log_offset, b"\xff")
    assert run("repair", root, "--into", new, "--write").code == 0
    assert checked(new).damages == []
    store = open_stores.open_store(new)
    found = [message.queue_offset for message in open_stores.messages(store, "Orders", 0)]
    assert found == [0, 2]
    open_stores.close(store)


def test_of_a_damaged_table_its_copy_counts(root: Path, tmp_path: Path) -> None:
    table = root / "config" / "topics.json"
    table.parent.mkdir()
    saved = b'{\n\t"topicConfigTable":{\n\t\t"T":{\n\t\t\t"perm":6\n\t\t}\n\t}\n}'
    table.write_bytes(b'{"topicConfigTable":{"To')
    table.with_name("topics.json.bak").write_bytes(seal(saved, 0))
    assert [damage.kind for damage in checked(root).damages] == ["table"]
    assert run("repair", root, "--into", tmp_path / "new", "--write").code == 0
    assert (tmp_path / "new" / "config" / "topics.json").read_bytes() == saved
    assert checked(tmp_path / "new").damages == []
    assert table.read_bytes() == b'{"topicConfigTable":{"To'


def test_newest_files_that_are_missing_are_lost(root: Path, tmp_path: Path) -> None:
    newest = max((root / "commitlog").iterdir())
    ends = StoreView(root).queues.ends()
    end = StoreView(root).log_end()
    newest.unlink()
    kept = _messages(root)
    ended = run("repair", root, "--into", tmp_path / "new", "--json", "--write")
    (lost,) = ended.objects[0]["lost"]
    assert (lost["logOffset"], lost["size"]) == (int(newest.name), end - int(newest.name))
    assert len(kept) + len(lost["messages"]) == 60
    assert _messages(tmp_path / "new") == kept
    assert StoreView(tmp_path / "new").queues.ends() == ends
    assert checked(tmp_path / "new").damages == []


def test_a_table_that_nobody_can_read_is_left_out(root: Path, tmp_path: Path) -> None:
    table, new = root / "config" / "consumerOffset.json", tmp_path / "new"
    table.parent.mkdir()
    table.write_bytes(b"{")
    table.with_name("consumerOffset.json.bak").write_bytes(b"{")
    ended = run("repair", root, "--into", new, "--write")
    assert (ended.code, "Left out: config/consumerOffset.json" in ended.out) == (0, True)
    assert _messages(new) == _messages(root)
    assert checked(new).is_sound
