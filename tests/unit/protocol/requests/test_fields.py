"""Header fields: text to values and back, and errors that name the field."""

import msgspec
import pytest

from rockhopper.protocol import requests
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import (
    EndTransactionRequest,
    GetAllTopicConfigRequest,
    GetMaxOffsetRequest,
    GetRouteInfoRequest,
    HeartbeatResponse,
    KVConfigRequest,
    PullMessageRequest,
    QueryConsumerOffsetRequest,
    QueryMessageRequest,
    RegisterBrokerRequest,
    ResetOffsetRequest,
    SearchOffsetRequest,
    SendMessageResponse,
    UnregisterClientRequest,
    decode_fields,
    encode_fields,
)

OFFSET = {"consumerGroup": "g", "topic": "T", "queueId": "3"}


def test_unknown_fields_are_ignored() -> None:
    ext = {**OFFSET, "ReqT": "0", "AccessKey": "ak"}
    assert decode_fields(QueryConsumerOffsetRequest, ext).queue_id == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("True", True),
        ("1", True),
        ("false", False),
        ("0", False),
        ("yes", False),
        ("undefined", False),
    ],
)
def test_true_and_1_are_true_and_anything_else_is_false(text: str, value: bool) -> None:
    request = decode_fields(GetMaxOffsetRequest, {"topic": "T", "queueId": "0", "committed": text})
    assert request.committed is value


@pytest.mark.parametrize(("text", "value"), [("+3", 3), ("-3", -3), ("007", 7), ("0", 0)])
def test_integers_are_what_java_parses(text: str, value: int) -> None:
    assert decode_fields(QueryConsumerOffsetRequest, {**OFFSET, "queueId": text}).queue_id == value


@pytest.mark.parametrize("text", ["abc", " 3", "3 ", "0x1", "1_0", "--1", "٣", "null"])
def test_text_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(FieldError, match=r"'queueId' is .* not a number") as caught:
        decode_fields(QueryConsumerOffsetRequest, {**OFFSET, "queueId": text})
    assert caught.value.name == "queueId"
    assert not caught.value.is_missing


@pytest.mark.parametrize(
    "text", ["2147483648", "-2147483649", "9" * 30, "9" * 5000, "-" + "9" * 5000]
)
def test_number_beyond_its_field_is_named(text: str) -> None:
    with pytest.raises(FieldError, match=r"'queueId' is .* out of range") as caught:
        decode_fields(QueryConsumerOffsetRequest, {**OFFSET, "queueId": text})
    assert not caught.value.is_missing


def test_64_bit_numbers_fit_their_fields() -> None:
    ext = {"topic": "T", "queueId": "0", "timestamp": "-9223372036854775808"}
    assert decode_fields(SearchOffsetRequest, ext).timestamp == -(2**63)


@pytest.mark.parametrize("ext", [None, {}, {"topic": "T", "consumerGroup": "g"}])
def test_missing_field_is_named(ext: dict[str, str] | None) -> None:
    with pytest.raises(FieldError, match="is missing") as caught:
        decode_fields(QueryConsumerOffsetRequest, ext)
    assert caught.value.is_missing
    assert caught.value.name in ("consumerGroup", "queueId")


def test_empty_text_of_a_number_is_missing_and_of_an_optional_one_absent() -> None:
    with pytest.raises(FieldError, match="'queueId' is missing"):
        decode_fields(QueryConsumerOffsetRequest, {**OFFSET, "queueId": ""})
    assert decode_fields(GetAllTopicConfigRequest, {"topicSeq": ""}).topic_seq is None


def test_empty_string_is_a_string() -> None:
    assert decode_fields(QueryConsumerOffsetRequest, {**OFFSET, "topic": ""}).topic == ""


def test_pull_leaves_out_what_it_does_not_use() -> None:
    ext = {**OFFSET, "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "0"}
    assert decode_fields(PullMessageRequest, ext).sub_version == 0


@pytest.mark.parametrize(
    ("cls", "ext"),
    [
        # What the reference wrote for INVOKE_BROKER_TO_RESET_OFFSET, 29 and 30.
        (
            ResetOffsetRequest,
            {
                "queueId": "-1",
                "offset": "-1",
                "topic": "T",
                "isForce": "true",
                "group": "g",
                "timestamp": "1",
            },
        ),
        (
            SearchOffsetRequest,
            {
                "queueId": "0",
                "bname": "b",
                "topic": "T",
                "boundaryType": "LOWER",
                "timestamp": "5",
            },
        ),
        (GetMaxOffsetRequest, {"queueId": "0", "committed": "true", "topic": "T"}),
    ],
)
def test_reads_and_writes_what_the_reference_wrote(
    cls: type[msgspec.Struct], ext: dict[str, str]
) -> None:
    assert encode_fields(decode_fields(cls, ext)) == ext


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (UnregisterClientRequest, "clientID"),
        (QueryMessageRequest, "_UNIQUE_KEY_QUERY"),
        (HeartbeatResponse, "IS_SUPPORT_HEART_BEAT_V2"),
        (SendMessageResponse, "MSG_REGION"),
        (SendMessageResponse, "batchUniqId"),
        (RegisterBrokerRequest, "bodyCrc32"),
        (RegisterBrokerRequest, "haServerAddr"),
        (PullMessageRequest, "proxyFrowardClientId"),
        (GetRouteInfoRequest, "acceptStandardJsonOnly"),
        (EndTransactionRequest, "tranStateTableOffset"),
        (KVConfigRequest, "namespace"),
        (KVConfigRequest, "ns"),
        (PullMessageRequest, "nsd"),
        (PullMessageRequest, "oway"),
        (PullMessageRequest, "lo"),
    ],
)
def test_names_are_those_on_the_wire(cls: type[msgspec.Struct], name: str) -> None:
    assert name in cls.__struct_encode_fields__


@pytest.mark.parametrize("name", sorted(set(requests.__all__) - {"decode_fields", "encode_fields"}))
def test_every_class_reads_what_it_writes(name: str) -> None:
    cls = getattr(requests, name)
    ext = {}
    for info in msgspec.structs.fields(cls):
        is_flag = info.type is bool or info.type == (bool | None)
        ext[info.encode_name] = "true" if is_flag else "17"
    assert encode_fields(decode_fields(cls, ext)) == ext
