import struct
from pathlib import Path

from tests.support import apache_golden
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
    assert f"at {offset + 1} of the log" in damage.what
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


def test_a_wrong_time_of_delivery_is_named(root: Path, config: Path) -> None:
    config.write_text(config.read_text() + "messageDelayLevel=7s\n")
    findings = checked(root, config)
    assert findings.is_sound  # Levels may have been others when they were stored.
    assert any("--config" in note for note in findings.notes)
    path = root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}"
    offset, size_bytes, due_ms = UNIT.unpack_from(path.read_bytes())
    overwrite(path, 0, UNIT.pack(offset, size_bytes, due_ms + 64))
    (damage,) = checked(root).damages
    assert damage.what == f"it is due at {due_ms + 64}, and by the delay levels at {due_ms}"


def test_a_lost_extension_is_named(tmp_path: Path) -> None:
    store = apache_golden.unpack("extended", tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in store.geometry.items()))
    (store.path / "consumequeue_ext" / "Extended" / "0" / f"{0:020d}").unlink()
    damages = checked(store.path, config).damages
    assert damages
    assert all("extension unit" in each.what for each in damages)
