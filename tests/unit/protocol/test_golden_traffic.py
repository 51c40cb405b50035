"""A recorded conversation of RocketMQ's Java client 4.9.8 with its name server and broker."""

import json
from typing import Any

import msgspec
import pytest

from rockhopper.protocol.bodies import (
    Body,
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
)
from rockhopper.protocol.codes import LanguageCode, RequestCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.requests import (
    ConsumerSendMsgBackRequest,
    EndTransactionRequest,
    GetConsumerListByGroupRequest,
    GetRouteInfoRequest,
    PullMessageRequest,
    QueryConsumerOffsetRequest,
    SendMessageRequestV2,
    UnregisterClientRequest,
    UpdateConsumerOffsetRequest,
    decode_fields,
    encode_fields,
)
from rockhopper.protocol.store.message_codec import decode_batch
from tests.support.golden_stores import golden_directory

FIELDS: dict[int, type[msgspec.Struct]] = {
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestV2,
    RequestCode.PULL_MESSAGE: PullMessageRequest,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetRequest,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetRequest,
    RequestCode.UNREGISTER_CLIENT: UnregisterClientRequest,
    RequestCode.CONSUMER_SEND_MSG_BACK: ConsumerSendMsgBackRequest,
    RequestCode.END_TRANSACTION: EndTransactionRequest,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: GetConsumerListByGroupRequest,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: GetRouteInfoRequest,
}
BODIES: dict[int, type[Body]] = {
    RequestCode.HEART_BEAT: HeartbeatData,
    RequestCode.LOCK_BATCH_MQ: LockBatchRequestBody,
    RequestCode.UNLOCK_BATCH_MQ: LockBatchRequestBody,
    RequestCode.CHECK_CLIENT_CONFIG: CheckClientRequestBody,
}


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    """Give the frames of the recording, decoded by whoever recorded it."""
    recording = golden_directory() / "traffic/java-4.9.8.jsonl"
    return [json.loads(line) for line in recording.read_text().splitlines()]


def requests(recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [frame for frame in recorded if not frame["flag"] & 1 and frame["dir"] == "C>S"]


def test_every_header_is_read(recorded: list[dict[str, Any]]) -> None:
    assert len(recorded) > 200
    for frame in recorded:
        assert decode_header(0, frame["hdr"].encode()) == Command(
            frame["code"],
            frame["opq"],
            frame["flag"],
            frame["remark"],
            frame["ext"],
            b"",
            LanguageCode[frame["lang"]],
            frame["ver"],
        )


def test_every_header_is_written_as_it_was(recorded: list[dict[str, Any]]) -> None:
    for frame in recorded:
        ((_, header, _),) = FrameDecoder().feed(
            encode_command(decode_header(0, frame["hdr"].encode()))
        )
        # The order of the ext fields is not the same everywhere in Java.
        assert json.loads(header) == json.loads(frame["hdr"])
        assert len(header) == len(frame["hdr"].encode())


def test_fields_of_every_request_are_read_and_written(recorded: list[dict[str, Any]]) -> None:
    seen = set()
    for frame in requests(recorded):
        cls = FIELDS.get(frame["code"])
        if cls is not None:
            seen.add(frame["code"])
            written = encode_fields(decode_fields(cls, frame["ext"]))
            known = {name: value for name, value in frame["ext"].items() if name != "ReqT"}
            assert written.items() >= known.items()
    assert seen == set(FIELDS)


def test_json_bodies_of_requests_are_read(recorded: list[dict[str, Any]]) -> None:
    seen = set()
    for frame in requests(recorded):
        cls = BODIES.get(frame["code"])
        if cls is not None:
            seen.add(frame["code"])
            written = json.loads(cls.decode(frame["body"]).encode())
            for name, value in json.loads(frame["body"]).items():
                assert type(value) is list or written[name] == value
    assert seen == set(BODIES)


def test_batch_body_is_read(recorded: list[dict[str, Any]]) -> None:
    (frame,) = [each for each in requests(recorded) if each["code"] == 320]
    messages = decode_batch(frame["body"].encode("latin-1"))
    assert [body for _, body, _ in messages] == [b"b1", b"b2"]
