"""Bodies of TOPIC_IDS."""

import pytest

from rockhopper.protocol.bodies.topic_ids import decode_topic_ids, decode_topics, encode_topic_ids
from rockhopper.protocol.errors import MalformedBodyError


def test_topics_are_a_msgpack_array_of_texts() -> None:
    body = b"\x92\xa6orders\xa5audit"
    assert encode_topic_ids(["orders", "audit"]) == body
    assert decode_topics(body) == ["orders", "audit"]


def test_a_topic_that_is_not_there_has_nil_for_an_id() -> None:
    body = b"\x92\xa2id\xc0"
    assert encode_topic_ids(["id", None]) == body
    assert decode_topic_ids(body) == ["id", None]


@pytest.mark.parametrize(
    "body", [b"", b"\xc0", b"\x91\x07", b"\x92\xa1a", b"\x91\xa1\xff", b"\x91" * 5000, b"{}"]
)
def test_what_is_no_array_of_texts_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="does not decode"):
        decode_topics(body)
    with pytest.raises(MalformedBodyError, match="does not decode"):
        decode_topic_ids(body)


def test_nil_is_no_topic() -> None:
    with pytest.raises(MalformedBodyError):
        decode_topics(b"\x91\xc0")
