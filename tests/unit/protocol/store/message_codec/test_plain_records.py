"""Records that need not be decoded: which they are, and that damage is left to the decoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.errors import MalformedMessageError
from rockhopper.protocol.store.message_codec import (
    decode_message,
    decode_messages,
    host_bytes,
    split_plain_records,
)
from tests.support.records import encode_message

PLAIN = encode_message(topic="orders", body=b"body", properties={"a": "b"}, queue_offset=7)
RECORDS = {
    "compressed": encode_message(topic="orders", body=b"body", sys_flag=1),
    "a batch": encode_message(topic="orders", body=b"body", sys_flag=0xC0),
    "ipv6": encode_message(topic="orders", born_host=host_bytes("::1", 5)),
    "another topic": encode_message(topic="order"),
    "a longer topic": encode_message(topic="orders2"),
    "V2": encode_message(topic="t" * 200),
}


def test_usual_records_are_split_with_their_place_and_the_size_of_their_body() -> None:
    other = encode_message(topic="orders", queue_offset=8)
    records, end = split_plain_records(b"xx" + PLAIN + other, 2, b"orders")
    assert records == [(7, 4, PLAIN), (8, 0, other)]
    assert end == 2 + len(PLAIN) + len(other)


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_of_another_kind_ends_the_stretch(record: bytes) -> None:
    assert split_plain_records(PLAIN + record + PLAIN, 0, b"orders") == (
        [(7, 4, PLAIN)],
        len(PLAIN),
    )


def test_a_topic_that_needs_v2_has_no_usual_records() -> None:
    topic = "t" * 200
    assert split_plain_records(encode_message(topic=topic), 0, topic.encode()) == ([], 0)


@given(
    number=st.integers(0, len(PLAIN) - 1), value=st.integers(0, 255), cut=st.integers(0, len(PLAIN))
)
def test_what_is_split_is_what_the_decoder_reads(number: int, value: int, cut: int) -> None:
    changed = bytearray(PLAIN + PLAIN)
    changed[number] = value
    buffer = bytes(changed[: 2 * len(PLAIN) - cut])
    records, end = split_plain_records(buffer, 0, b"orders")
    assert sum(len(record) for _, _, record in records) == end
    for queue_offset, body_size, record in records:
        message = decode_message(record)
        assert (message.queue_offset, message.topic) == (queue_offset, "orders")
        assert message.body == record[88 : 88 + body_size]
    try:
        expected = decode_messages(buffer)
    except MalformedMessageError:
        with pytest.raises(MalformedMessageError):
            decode_messages(buffer[end:])
    else:
        assert [decode_message(record) for _, _, record in records] == expected[: len(records)]
