"""Staged parts: entries in files by sink, batch and part; whole after a crash, or cut."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.sinks.staged_parts import (
    StagedParts,
    entries,
    find_topics,
    is_part_name,
    items,
    sink_key,
)
from rockhopper.protocol.bodies.sinks import SinkMessage, encode_sink_body
from tests.support.rot import flip_bit

SINK = sink_key("query-1")
KEY = (SINK, 7, "0.0")


def opened(root: Path, now_ms: int = 1000) -> StagedParts:
    parts = StagedParts(root / "sinks")
    parts.load(now_ms)
    return parts


def add(parts: StagedParts, key: tuple[str, int, str], sequence: int, *topics: str) -> None:
    """One message for each topic."""
    given = [SinkMessage(topic, -1, 0, 5, "", topic.encode()) for topic in topics]
    parts.append_entry(key, sequence, encode_sink_body(given), len(given), set(topics), now_ms=2000)


def test_a_sinks_key_is_that_of_its_files_for_ever() -> None:
    """Made with coreutils: ``printf query-1 | sha256sum``."""
    assert sink_key("query-1") == "8d26786e78884f230bfa85f4"
    assert sink_key("query-1") != sink_key("query-2")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("0.0", True),
        ("a_B.9", True),
        ("", False),
        ("a-b", False),
        ("../x", False),
        ("x" * 101, False),
    ],
)
def test_a_part_has_a_name_that_fits_a_file(name: str, is_one: bool) -> None:
    assert is_part_name(name) is is_one


def test_what_is_added_is_counted_and_read_again(tmp_path: Path) -> None:
    parts = opened(tmp_path)
    assert parts.get(KEY) is None
    add(parts, KEY, 0, "a", "b")
    add(parts, KEY, 1, "c")
    part = parts.get(KEY)
    assert part is not None
    assert (part.message_count, part.sequence, part.topics) == (3, 2, {"a", "b", "c"})
    assert parts.size_bytes == part.size_bytes == part.path.stat().st_size
    assert [message.topic for message in items(part.path)] == ["a", "b", "c"]
    assert find_topics(part.path) == {"a", "b", "c"}
    again = opened(tmp_path).get(KEY)
    assert again is not None
    assert (again.message_count, again.sequence, again.touched_ms) == (3, 2, 1000)
    assert again.topics is None


def test_a_part_whose_topics_nobody_knows_counts_for_every_topic(tmp_path: Path) -> None:
    parts = opened(tmp_path)
    add(parts, KEY, 0, "a")
    assert parts.list_for_topic("a") == [KEY]
    assert parts.list_for_topic("b") == []
    again = opened(tmp_path)
    assert again.list_for_topic("b") == [KEY]
    add(again, KEY, 1, "c")
    assert again.list_for_topic("b") == [KEY]


@pytest.mark.parametrize("damage", ["torn head", "torn data", "another bit"])
def test_what_a_crash_tore_off_is_cut_away(tmp_path: Path, damage: str) -> None:
    parts = opened(tmp_path)
    add(parts, KEY, 0, "a")
    part = parts.get(KEY)
    assert part is not None
    first = part.size_bytes
    add(parts, KEY, 1, "b")
    path = part.path
    if damage == "another bit":
        flip_bit(path, first + 20)
    else:
        path.write_bytes(path.read_bytes()[: first + (5 if damage == "torn head" else 20)])
    with capture_logs() as logs:
        again = opened(tmp_path)
    assert [entry["file"] for entry in logs] == [path.name]
    found = again.get(KEY)
    assert found is not None
    assert (found.message_count, found.sequence, found.size_bytes) == (1, 1, first)
    assert path.stat().st_size == first
    add(again, KEY, 1, "c")
    assert [sequence for sequence, _, _ in entries(path)] == [0, 1]


def test_parts_are_found_by_sink_and_batch(tmp_path: Path) -> None:
    parts = opened(tmp_path)
    other = (sink_key("query-2"), 7, "0.0")
    later = (SINK, 8, "0.0")
    for key in (KEY, later, other):
        add(parts, key, 0, "a")
    assert parts.keys(SINK) == [KEY, later]
    assert parts.keys(SINK, 8) == [later]
    assert parts.keys(SINK, 9) == []
    assert parts.list_untouched_since(2000) == []
    assert parts.list_untouched_since(2001) == [KEY, later, other]


def test_forgotten_parts_leave_their_files_to_the_caller(tmp_path: Path) -> None:
    parts = opened(tmp_path)
    add(parts, KEY, 0, "a")
    (path,) = parts.forget([KEY, (SINK, 99, "x")])
    assert path.exists()
    assert (parts.get(KEY), parts.size_bytes) == (None, 0)
    assert parts.forget([KEY]) == []


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sinks").mkdir()
    for name in ("x.part", f"{SINK}-7-a-b.part", f"{SINK}-7-0.0.tmp"):
        (tmp_path / "sinks" / name).write_bytes(b"")
    parts = opened(tmp_path)
    assert parts.keys(SINK) == []
    assert len(list((tmp_path / "sinks").iterdir())) == 3


def test_a_part_that_cannot_be_written_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = opened(tmp_path)
    add(parts, KEY, 0, "a")

    def fail(descriptor: int, position: int, data: bytes) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("rockhopper.broker.store.files.disk.write_fully", fail)
        with pytest.raises(OSError, match="no space"):
            add(parts, KEY, 1, "b")
    part = parts.get(KEY)
    assert part is not None
    assert (part.message_count, part.sequence) == (1, 1)
    assert part.path.stat().st_size == part.size_bytes == parts.size_bytes
