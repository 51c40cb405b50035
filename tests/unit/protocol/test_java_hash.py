"""Java's String.hashCode and the hashes of index files."""

import pytest

from rockhopper.protocol.java_hash import (
    hash_index_key_seeded,
    index_key_hash,
    index_key_seed,
    java_string_hash,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("标签", 857175),
        ("😀", 1772899),
        ("some-very-long-tag-value", 155178635),
        ("TopicA#k0", -1903240650),
        ("TopicA#UKTopicA0100", -1414517062),
        ("TopicA#kk", -1903240591),
        # The smallest number there is.
        ("polygenelubricants", -(2**31)),
    ],
)
def test_hashes_are_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected
    assert java_string_hash(text) == expected, "the same when its parts are known"


@pytest.mark.parametrize(
    ("key", "expected"), [("k0", 0x717125CA), ("UKTopicA0100", 0x544FD146), ("kk", 0x7171258F)]
)
def test_index_hashes_are_those_of_the_reference(key: str, expected: int) -> None:
    assert index_key_hash("TopicA", key) == expected


def test_absolute_value_of_the_smallest_number_is_0() -> None:
    assert java_string_hash("polygene#lubrica!AHNR?AB") == -(2**31)
    assert index_key_hash("polygene", "lubrica!AHNR?AB") == 0


def test_key_may_be_empty_or_longer_than_what_is_remembered() -> None:
    for key in ("", "x" * 255, "x" * 256, "x" * 1000, "ü" * 20, "😀" * 20):
        assert index_key_hash("T", key) == abs(java_string_hash(f"T#{key}"))


def test_seed_stands_for_the_topic() -> None:
    seed = index_key_seed("TopicA")
    assert hash_index_key_seeded(seed, "UKTopicA0100") == 0x544FD146


def test_many_keys_do_not_confuse_what_is_remembered() -> None:
    for number in range(6000):
        key = f"7F0000011234{number * 2654435761 % 2**32:08X}{number:012X}"
        reference = 0
        for character in f"T#{key}":
            reference = (reference * 31 + ord(character)) % 2**32
        assert index_key_hash("T", key) == (reference if reference < 2**31 else 2**32 - reference)
