"""Where deleted topics end: today's records, and what builds before 0.2.0 wrote."""

import pytest

from rockhopper.protocol.store.journal_records import encode_record
from rockhopper.protocol.store.topic_ends import decode_ends, decode_former_ends, encode_ends


def test_the_last_word_on_a_topic_counts() -> None:
    data = encode_ends({"T": 5, "U": 6}) + encode_ends({"T": 9})
    assert decode_ends(data) == {"T": 9, "U": 6}


def test_records_of_other_kinds_are_passed_over() -> None:
    data = encode_record(7, b"a later release") + encode_ends({"T": 5})
    assert decode_ends(data) == {"T": 5}


def test_of_two_copies_one_is_enough() -> None:
    first, second = encode_ends({"T": 5}), encode_ends({"U": 6})
    half = len(first) // 2
    assert decode_ends(first[:half] + bytes(half) + second) == {"T": 5, "U": 6}
    assert decode_ends(bytes(half) + first[half:] + second) == {"T": 5, "U": 6}


def test_what_is_damaged_is_left_out() -> None:
    first, second = encode_ends({"T": 5}), encode_ends({"U": 6})
    assert decode_ends(bytes(len(first)) + second) == {"U": 6}
    assert decode_ends(first + second[: len(second) // 2 - 1]) == {"T": 5}
    assert decode_ends(b"") == {}


def test_a_file_of_early_builds_is_one_object() -> None:
    assert decode_former_ends(b'{"T": 5, "U": 6}') == {"T": 5, "U": 6}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b"{", b'{"T": null}', b'{"T": "x"}', b"[" * 99999]
)
def test_a_damaged_file_of_early_builds_is_said_to_be_so(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the text is json's
        decode_former_ends(data)
