"""Tags codes: Java's hash of the tags, or when a delayed message is due."""

import pytest

from rockhopper.protocol.store import expected as module
from rockhopper.protocol.store.expected import compute_tags_code, hash_of_tags


@pytest.mark.parametrize(
    ("tags", "code"),
    [(None, 0), ("", 0), ("TagA", 2598919), ("ab", 3105), ("größe", 98762257), ("a" * 40, None)],
)
def test_the_hash_is_javas(tags: str | None, code: int | None) -> None:
    expected = 0
    for letter in tags or "":
        expected = (expected * 31 + ord(letter)) & 0xFFFFFFFF
    expected -= (expected & 0x80000000) << 1
    assert hash_of_tags(tags) == expected
    assert code is None or code == expected


def test_hashes_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, int] = {}
    monkeypatch.setattr(module, "_hashes", kept)
    monkeypatch.setattr(module, "TAGS_CACHED_MAX", 2)
    for number in range(4):
        assert hash_of_tags(f"t{number}") == hash_of_tags(f"t{number}")
    assert list(kept) == ["t0", "t1"]


@pytest.mark.parametrize(
    ("topic", "properties", "code"),
    [
        ("orders", {}, 0),
        ("orders", {"TAGS": "ab"}, 3105),
        ("orders", {"TAGS": "ab", "DELAY": "3"}, 3105),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "ab", "DELAY": "3"}, 1_003_000),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "ab", "DELAY": "0"}, 3105),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "ab", "DELAY": "x"}, 3105),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "ab", "DELAY": "-1"}, 3105),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "ab"}, 3105),
    ],
)
def test_a_delayed_message_has_its_due_time(
    topic: str, properties: dict[str, str], code: int
) -> None:
    found = compute_tags_code(topic, properties, 1_000_000, lambda level: 1000 * level)
    assert found == code
