from pathlib import Path

import pytest

from rockhopper.protocol.store.queue_layout import INDEX_ENTRY
from tests.support import open_stores
from tests.support.peers import Clock
from tests.support.rot import flip_bit, overwrite
from tests.support.tool_stores import checked, fill

ENTRIES_AT = 40 + 4 * 16


def _file(root: Path) -> Path:
    (path,) = (root / "index").iterdir()
    return path


def _place(number: int) -> int:
    return ENTRIES_AT + 20 * number


def test_a_wrong_entry_is_named_alone(root: Path) -> None:
    path = _file(root)
    entry = INDEX_ENTRY.unpack_from(path.read_bytes(), _place(7))
    overwrite(path, _place(7), INDEX_ENTRY.pack(entry[0] ^ 16, *entry[1:]))
    damages = checked(root).damages
    assert [each.place for each in damages] == [{"file_position": _place(7)}]
    assert "entry 7 does not point to a record with its key" in damages[0].what


def test_a_wrong_time_and_a_wrong_link_are_named(root: Path) -> None:
    path = _file(root)
    key, offset, seconds, link = INDEX_ENTRY.unpack_from(path.read_bytes(), _place(90))
    overwrite(path, _place(90), INDEX_ENTRY.pack(key, offset, seconds + 9, link ^ 1))
    assert [each.what.split(" ", 2)[2].split(" ")[0] for each in checked(root).damages] == [
        "links",
        "says",
    ]


def test_missing_entries_are_named_as_one(root: Path) -> None:
    path = _file(root)
    data = path.read_bytes()
    overwrite(path, 36, (100).to_bytes(4, "big"))
    damages = checked(root).damages
    missing = [each for each in damages if "are missing" in each.what]
    assert [each.place["count"] for each in missing] == [180 - 99]
    path.write_bytes(data)
    assert checked(root).is_sound


def test_an_index_without_any_file_is_damage(root: Path) -> None:
    _file(root).unlink()
    (damage,) = checked(root).damages
    assert (damage.kind, damage.path, damage.place) == (
        "index",
        "index",
        {"log_offset": 0, "count": 180},
    )
    (root / "abort").touch()
    findings = checked(root)
    assert findings.is_sound
    assert findings.notes["keys that the index does not have yet"] == 180


def test_a_store_that_has_had_no_index_needs_none(tmp_path: Path) -> None:
    store = open_stores.open_store(tmp_path, index_enabled=False)
    fill(store, Clock(), 20)
    open_stores.close(store)
    assert checked(tmp_path).is_sound


def test_files_of_an_unknown_shape_are_passed_over_aloud(root: Path) -> None:
    (root / "rockhopper" / "geometry.json").unlink()
    findings = checked(root)
    assert findings.is_sound
    assert any("--config" in note for note in findings.notes)


@pytest.mark.parametrize(
    ("position", "name"),
    [
        (7, "first time"),
        (13, "last time"),
        (17, "first offset"),
        (23, "first offset"),
        (31, "last offset"),
        (35, "number of slots in use"),
    ],
)
def test_each_field_of_the_header_is_compared(root: Path, position: int, name: str) -> None:
    flip_bit(_file(root), position)
    told = f"its header's {name} is"
    assert [each for each in checked(root).damages if told in each.what]


def test_wrong_entries_side_by_side_are_named_as_one(root: Path) -> None:
    overwrite(_file(root), _place(40), bytes(20 * 50))
    damages = checked(root).damages
    (wrong,) = [each for each in damages if "does not point to a record" in each.what]
    assert wrong.place == {"file_position": _place(40), "count": 50}
    assert len(damages) < 20


def test_the_first_entry_of_a_file_counts_from_the_end_of_the_file_before(tmp_path: Path) -> None:
    clock = Clock()
    store = open_stores.open_store(tmp_path, clock)
    for number in range(150):
        clock.advance(5000)
        open_stores.put(store, b"b", properties=f"UNIQ_KEY\x01U{number}\x02KEYS\x01a b\x02")
    open_stores.close(store)
    _, second = sorted((tmp_path / "index").iterdir())
    assert checked(tmp_path).damages == []

    held = overwrite(second, _place(1) + 12, (3).to_bytes(4, "big"))
    (damage,) = checked(tmp_path).damages
    assert "entry 1 says 3 s after the end of the previous file" in damage.what
    assert INDEX_ENTRY.unpack_from(held, _place(1))[2] == 5
