"""Header fields of sends, in both forms."""

from rockhopper.protocol.requests import (
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
    decode_fields,
    encode_fields,
)

# extFields of SEND_MESSAGE_V2 that the reference wrote.
SEND_V2 = {
    "a": "pg",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x01ABC\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def test_reads_and_writes_the_letters_of_the_reference() -> None:
    request = decode_fields(SendMessageRequestV2, SEND_V2)
    assert request.producer_group == "pg"
    assert request.topic == "TopicTest"
    assert request.default_topic_queue_nums == 4
    assert request.born_timestamp == 1_700_000_000_000
    assert request.broker_name == "broker-a"
    assert request.batch is False
    assert request.max_reconsume_times is None
    assert encode_fields(request) == SEND_V2


def test_both_forms_of_a_send_have_the_same_attributes() -> None:
    assert set(SendMessageRequest.__struct_fields__) == set(SendMessageRequestV2.__struct_fields__)


def test_fields_that_are_none_are_not_written() -> None:
    assert encode_fields(SendMessageResponse(msg_id="m", queue_id=1, queue_offset=2)) == {
        "msgId": "m",
        "queueId": "1",
        "queueOffset": "2",
    }
