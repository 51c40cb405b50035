"""Topics in bodies: tables, registrations plain and compressed, one line of a file."""

import zlib

import pytest

from rockhopper.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    parse_topic_text,
    topic_text,
)
from rockhopper.protocol.errors import MalformedBodyError


def test_topic_without_its_name_takes_it_from_the_table() -> None:
    table = TopicConfigTable.decode('{"topicConfigTable":{"T":{"perm":4,"attributes":null}}}')
    assert table.topic_config_table["T"] == TopicConfig("T", perm=4)


REGISTRATION = RegisterBrokerBody(
    TopicConfigTable(
        {
            "T": TopicConfig("T", 8, 8),
            "U": TopicConfig("U", attributes={"message.type": "FIFO"}),
        },
        DataVersion(3, 0, 5),
        topic_queue_mapping_info_map={"U": {"topic": "U", "totalQueues": 4}},
    ),
    ["filter:1"],
)


def test_compressed_registration_reads_back() -> None:
    data = REGISTRATION.encode_compressed()
    assert RegisterBrokerBody.decode_registration(data, compressed=True) == REGISTRATION


def test_plain_registration_reads_back() -> None:
    assert RegisterBrokerBody.decode_registration(REGISTRATION.encode()) == REGISTRATION


def test_old_broker_registers_the_bare_table() -> None:
    table = REGISTRATION.topic_config_serialize_wrapper
    body = RegisterBrokerBody.decode_registration(table.encode(), version=36)
    assert body.topic_config_serialize_wrapper == table


def test_compressed_registration_of_an_older_broker_has_no_mappings() -> None:
    plain = zlib.decompress(RegisterBrokerBody().encode_compressed())
    body = RegisterBrokerBody.decode_registration(zlib.compress(plain[:-4]), compressed=True)
    assert body == RegisterBrokerBody()


def test_broken_compressed_registration_is_refused() -> None:
    data = REGISTRATION.encode_compressed()
    plain = zlib.decompress(data)
    broken = [b"", b"garbage", data[:-1], zlib.compress(plain[:-1]), zlib.compress(b"\xff" * 8)]
    broken.append(zlib.compress(plain.replace(b"SINGLE_TAG", b"SINGLE\xff\xffAG")))
    broken.append(zlib.compress(plain.replace(b"T 8 8 6", b"T x 8 6")))
    for body in broken:
        with pytest.raises(MalformedBodyError):
            RegisterBrokerBody.decode_registration(body, compressed=True)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("T 8 8 6 SINGLE_TAG {}", TopicConfig("T", 8, 8)),
        ("T 8 4 2 MULTI_TAG", TopicConfig("T", 8, 4, 2, "MULTI_TAG")),
        ('T 8 8 6 SINGLE_TAG {"a":"b c"}', TopicConfig("T", 8, 8, attributes={"a": "b c"})),
    ],
)
def test_topic_in_one_line(text: str, topic: TopicConfig) -> None:
    assert parse_topic_text(text) == topic
    assert parse_topic_text(topic_text(topic)) == topic
    assert topic_text(TopicConfig("T", 8, 8)) == "T 8 8 6 SINGLE_TAG {}"
