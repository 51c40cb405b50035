"""Hashes of many strings at once are Java's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.pipeline.derived import hashes
from rockhopper.pipeline.derived.hashes import as_index_hash, combine_hashes, hash_spans
from rockhopper.protocol.java_hash import index_key_hash, java_string_hash


def spans(texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pieces = [text.encode() for text in texts]
    ends = np.cumsum([len(piece) for piece in pieces])
    starts = ends - [len(piece) for piece in pieces]
    return np.frombuffer(b"".join(pieces) or b"\0", np.uint8), starts, ends


@given(st.lists(st.text(max_size=40), min_size=1, max_size=20))
def test_pieces_hash_as_they_do_in_java(texts: list[str]) -> None:
    found = hash_spans(*spans(texts)).astype(np.int32).tolist()

    assert found == [java_string_hash(text) for text in texts]


def test_pieces_longer_than_a_sum_and_many_of_them() -> None:
    long = "x" * (hashes._SEGMENT_BYTES + 10)
    texts = ["a", long, *(f"key-{number}" * 50 for number in range(5000)), ""]

    found = hash_spans(*spans(texts)).astype(np.int32).tolist()

    assert found == [java_string_hash(text) for text in texts]


def test_a_key_of_a_topic_and_what_has_no_absolute_value() -> None:
    data, starts, ends = spans(["k0", "UKTopicA0100", "kk"])
    seeds = np.full(3, java_string_hash("TopicA#") & 0xFFFFFFFF, np.uint32)

    found = as_index_hash(combine_hashes(seeds, hash_spans(data, starts, ends), ends - starts))

    assert found.tolist() == [0x717125CA, 0x544FD146, 0x7171258F]
    assert found.tolist() == [index_key_hash("TopicA", key) for key in ("k0", "UKTopicA0100", "kk")]
    assert as_index_hash(np.array([0x80000000], np.uint32)).tolist() == [0]
