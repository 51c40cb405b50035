import os
import struct
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import CorruptFileError
from tests.support import apache_golden, open_stores
from tests.support.rot import overwrite
from tests.support.tool_stores import checked

UNIT = struct.Struct(">qiq")


def test_a_wrong_unit_is_named_with_its_message(root: Path) -> None:
    path = root / "consumequeue" / "Topic1" / "2" / f"{0:020d}"
    offset, size_bytes, code = UNIT.unpack_from(path.read_bytes(), 40)
    overwrite(path, 40, UNIT.pack(offset + 1, size_bytes, code))
    (damage,) = checked(root).damages
    assert damage.place == {
        "topic": "Topic1",
        "queue": 2,
        "queue_offset": 2,
        "file_position": 40,
        "log_offset": offset,
    }
    assert f"at log offset {offset + 1}" in damage.what
    overwrite(path, 40, UNIT.pack(offset, size_bytes, 7))
    assert "tags code is 7" in checked(root).damages[0].what


def test_units_without_a_record_are_named_once(root: Path) -> None:
    path = root / "consumequeue" / "Topic0" / "0" / f"{0:020d}"
    data = path.read_bytes()
    end = len(data.rstrip(b"\0")) + 19
    end -= end % 20
    overwrite(path, end, data[end - 20 : end] * 2)
    (damage,) = checked(root).damages
    assert damage.what == "a unit points to no message of its queue"
    assert damage.place["count"] == 2


@pytest.mark.parametrize("size_bytes", [20 * 30, 20 * 80])
def test_a_file_of_another_size_is_named_as_a_broker_does(root: Path, size_bytes: int) -> None:
    path = root / "consumequeue" / "Topic1" / "2" / f"{0:020d}"
    right_bytes = path.stat().st_size
    os.truncate(path, size_bytes)
    (damage,) = checked(root).damages
    assert (damage.kind, damage.path) == ("file", str(path.relative_to(root)))
    assert damage.what == f"the file has {size_bytes} bytes, not {right_bytes}"
    open_stores.close(open_stores.open_store(root))
    assert path.stat().st_size == right_bytes
    assert checked(root).is_sound


def test_sizes_of_which_none_is_known_to_be_right_are_named(tmp_path: Path) -> None:
    store = open_stores.open_store(tmp_path)
    for queue_id in range(2):
        open_stores.put(store, b"x", "A", queue_id)
    open_stores.close(store)
    paths = sorted((tmp_path / "consumequeue").glob("*/*/*"))
    for count, path in enumerate(paths, 5):
        os.truncate(path, 20 * count)
    (tmp_path / "rockhopper" / "inventory.json").unlink()
    damages = checked(tmp_path).damages
    assert [(each.kind, each.path) for each in damages] == [
        ("file", str(path.relative_to(tmp_path))) for path in paths
    ]
    with pytest.raises(CorruptFileError):
        open_stores.open_store(tmp_path)


def test_a_wrong_time_of_delivery_is_named(root: Path, config: Path) -> None:
    config.write_text(config.read_text() + "messageDelayLevel=7s\n")
    findings = checked(root, config)
    assert findings.is_sound  # Levels may have been others when they were stored.
    assert any("--config" in note for note in findings.notes)
    path = root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}"
    offset, size_bytes, due_ms = UNIT.unpack_from(path.read_bytes())
    overwrite(path, 0, UNIT.pack(offset, size_bytes, due_ms + 64))
    (damage,) = checked(root).damages
    assert damage.what == f"it is due at {due_ms + 64}, but by the delay levels at {due_ms}"


def test_a_lost_extension_is_named(tmp_path: Path) -> None:
    store = apache_golden.unpack("extended", tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in store.geometry.items()))
    (store.path / "consumequeue_ext" / "Extended" / "0" / f"{0:020d}").unlink()
    damages = checked(store.path, config).damages
    assert damages
    assert all("extension unit" in each.what for each in damages)
