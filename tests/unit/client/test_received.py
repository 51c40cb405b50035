"""A received message: the record's fields by their names, and its body decompressed once."""

import zlib
from unittest import mock

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.errors import CompressionError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.records import encode_message

COMPRESSED = 1
QUEUE = MessageQueue("orders", "broker-a", 3)
PROPERTIES = {"UNIQ_KEY": "U", "TAGS": "t", "KEYS": "k1 k2", "mine": "1"}


def received(**fields: object) -> ReceivedMessage:
    stored = StoredMessage("orders", 3, 40, 1000, b"body", properties=PROPERTIES, size_bytes=99)
    for name, value in fields.items():
        setattr(stored, name, value)
    return ReceivedMessage(QUEUE, stored)


def test_fields_are_those_of_the_record_and_the_queue() -> None:
    message = received(reconsume_times=2, born_time_ms=5, store_time_ms=6)
    assert (message.topic, message.broker_name, message.queue_id) == ("orders", "broker-a", 3)
    assert (message.queue_offset, message.message_id) == (40, "U")
    assert message.offset_message_id == message.stored.offset_message_id
    assert (message.tags, message.keys) == ("t", ["k1", "k2"])
    assert message.properties == PROPERTIES
    assert (message.reconsume_times, message.born_time_ms, message.store_time_ms) == (2, 5, 6)
    assert repr(message) == "<message U at orders/broker-a/3 offset 40, a record of 99 bytes>"


def test_a_body_is_decompressed_once_when_it_is_asked_for() -> None:
    message = received(body=zlib.compress(b"long body"), sys_flag=COMPRESSED)
    with mock.patch.object(
        StoredMessage,
        "decompressed_body",
        autospec=True,
        return_value=b"long body",
    ) as decompress:
        assert [message.body, message.body] == [b"long body"] * 2
    assert decompress.call_count == 1


def test_a_body_that_does_not_decompress_costs_nothing_else() -> None:
    message = received(body=b"nonsense", sys_flag=COMPRESSED)
    assert message.message_id == "U"
    with pytest.raises(CompressionError):
        _ = message.body


def test_a_record_is_decoded_only_for_what_is_not_its_body_or_its_place() -> None:
    record = encode_message(topic="orders", body=b"body", properties=PROPERTIES, queue_offset=40)
    message = ReceivedMessage(QUEUE, (40, 4, record))
    with mock.patch("rockhopper.client.received.decode_message", wraps=decode_message) as decode:
        assert (message.body, message.queue_offset, message.size_bytes) == (
            b"body",
            40,
            len(record),
        )
        assert not decode.called
        assert (message.tags, message.message_id, message.topic) == ("t", "U", "orders")
        assert decode.call_count == 1
    assert message.stored == decode_message(record)
    assert message.body == b"body"


def test_a_record_that_was_decoded_still_gives_its_body() -> None:
    record = encode_message(topic="orders", body=b"body")
    message = ReceivedMessage(QUEUE, (0, 4, record))
    assert message.stored.topic == "orders"
    assert message.body == b"body"
