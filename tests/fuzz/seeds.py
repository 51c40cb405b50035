"""Inputs to begin with: what each target does gladly."""

import json

from rockhopper.broker.store.log.encoding import (
    INDEX_KEY,
    encode_plain,
    encode_record,
    queue_constants,
)
from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import encode_frame
from rockhopper.protocol.grpc_v2.messages import METHODS
from rockhopper.protocol.http2.frames import FLAG_END_HEADERS, FLAG_END_STREAM, FrameType, frame
from rockhopper.protocol.http2.hpack import encode_fields
from rockhopper.protocol.http2.huffman import encode_huffman
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from rockhopper.protocol.store.message_codec import encode_batch
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import MAGIC_V2
from rockhopper.protocol.store.walking import TIMED_KEY

_HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
_PROPERTIES = "UNIQ_KEY\x01AB01\x02KEYS\x01k1 k2\x02TAGS\x01A\x02WAIT\x01true\x02"
_EXT = {
    "a": "group",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "17",
    "h": "9",
    "i": _PROPERTIES,
    "j": "0",
    "k": "false",
    "m": "false",
}
_V1 = {
    "producerGroup": "group",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "2",
    "sysFlag": "0",
    "bornTimestamp": "17",
    "flag": "9",
    "properties": _PROPERTIES,
    "unitMode": "false",
    "batch": "false",
}
_ACK = {"consumerGroup": "billing", "topic": "orders", "queueId": "1"}
_BATCH = encode_batch([(number, b"x" * number, b"TAGS\x01A\x02") for number in range(3)])


def _json(code: int, ext: dict[str, str], body: bytes) -> bytes:
    parts = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 5}
    return encode_frame(0, json.dumps(parts, separators=(",", ":")).encode(), body)


def _binary(code: int, ext: dict[str, str], body: bytes) -> bytes:
    kind = SerializeType.ROCKETMQ
    return encode_command(Command(code, 5, 0, ext=ext, serialize_type=kind, body=body))


_HALF = "TRAN_MSG\x01true\x02PGROUP\x01group\x02"
_DONE = "__transactionId__\x01AB\x02REAL_TOPIC\x01orders\x02REAL_QID\x011\x02"


def _half_record() -> bytes:
    constants = queue_constants(TRANSACTION_HALF_TOPIC, 0)
    text = (_HALF + _PROPERTIES + _DONE).encode()
    now_ms = 1_700_000_000_000
    return encode_record(constants, 0, 7, now_ms, _HOST, b"body", text, 9, 0, 17, _HOST)


_LAST = (1 << 63) - 1


def _record(log_offset: int, queue_offset: int = 7) -> tuple[bytes, bytes]:
    constants = queue_constants("orders", 1)
    now_ms = 1_700_000_000_000
    head = constants, log_offset, queue_offset, now_ms, _HOST, b"body", _PROPERTIES, b""
    made = encode_plain(*head, 9, 0, 17, _HOST, 0)
    assert made is not None
    return made[0], made[1]


_record_0, _unit = _record(0)
_sends = [
    make(code, ext, body)
    for make in (_json, _binary)
    for code, ext, body in (
        (310, _EXT, b"hello"),
        (10, _V1, b"hello"),
        (320, _EXT | {"m": "true"}, _BATCH),
        (310, _EXT | {"i": _PROPERTIES + "DELAY\x012\x02"}, b"later"),
        (310, _EXT | {"i": _HALF + _PROPERTIES, "f": "4"}, b"half"),
    )
]
_SIGNATURE = {"AccessKey": "al", "SecurityToken": "token", "Signature": "A" * 28}
_signed = [
    make(code, ext | _SIGNATURE, b"hello")
    for make in (_json, _binary)
    for code, ext in ((310, _EXT), (10, _V1))
]
_PULL = {
    "consumerGroup": "group",
    "topic": "orders",
    "queueId": "1",
    "queueOffset": "7",
    "maxMsgNums": "32",
    "sysFlag": "7",
    "commitOffset": "5",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "3",
}
_pull = _json(11, _PULL, b"")[8:]


def _turns(frames: list[bytes], step: int) -> bytes:
    """The frames of three connections, in pieces that alternate; one closes before the end."""
    streams = [b"".join(frames[number::3]) for number in range(3)]
    pieces = []
    for start in range(0, max(map(len, streams)), step):
        for number, stream in enumerate(streams):
            piece = stream[start : start + step]
            is_end = number == 2 and start > 500
            who = number | (8 if is_end else 0) | (16 if start % (2 * step) == 0 else 0)
            pieces.append(bytes((who, len(piece))) + piece)
    return b"".join(pieces)


_acks = [
    _json(
        200051,
        _ACK | {"offset": str(offset), "extraInfo": f"0 1 60000 0 0 broker-a 1 {offset}"},
        b"",
    )
    for offset in (40, 41, -7)
]
_RUNS = b"".join(bytes((odd, 0, 1, 20)) + _unit for odd in (2, 2, 0, 4, 32, 16, 8))


def _grpc_send() -> bytes:
    request = METHODS["SendMessage"].request()
    message = request.messages.add(body=b"body")
    message.topic.resource_namespace, message.topic.name = "space", "orders"
    message.user_properties["colour"] = "blue"
    message.system_properties.message_id, message.system_properties.tag = "AB01", "A"
    message.system_properties.keys.extend(["k1", "k2"])
    message.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_001)
    message.system_properties.body_digest.checksum = "AB"
    message.system_properties.queue_id = 3
    return bytes(request.SerializeToString())


def _requests(timeout_size: int, mixed: int) -> bytes:
    """Return the frames of requests, bodies after the headers of *mixed* requests each."""
    begin = encode_fields([(":method", "POST"), (":scheme", "http"), (":path", "/x")])
    begin += encode_fields([(":authority", "x"), ("te", "trailers")])
    ids = [*range(1, 50, 2)]
    frames = []
    for first in range(0, len(ids), mixed):
        some = ids[first : first + mixed]
        for stream_id in some:
            timeout = encode_huffman(b"%du" % stream_id * timeout_size)
            literal = b"\x40\x0cgrpc-timeout" + bytes([0x80 | len(timeout)]) + timeout
            block = begin + (literal if stream_id % 4 == 1 else b"\xbe")
            frames.append(frame(FrameType.HEADERS, FLAG_END_HEADERS, stream_id, block))
        frames += [frame(FrameType.DATA, FLAG_END_STREAM, one, b"body") for one in some]
    return b"".join(frames)


SEEDS = [
    *(b"\0" + bytes([127]) + frame for frame in _sends),
    b"\0\xff" + b"".join(_sends),
    b"\0\xff" + b"".join(_signed),
    b"\1\1" + _record_0,
    b"\1\0" + _record(0, _LAST)[0] + _record(len(_record_0), 0)[0],
    b"\2\1" + _unit + _record_0,
    b"\3" + bytes([len(_PROPERTIES)]) + _PROPERTIES.encode() + b"body",
    b"\4\0" + _BATCH,
    b"\4\0" + encode_batch([(n, b"x" * n, _PROPERTIES.encode()) for n in range(3)]),
    b"\6\x40" + b"".join(_sends) + b"\0\0\0",
    b"\7\1" + _unit + _pull + b"\0" + _record_0,
    b"\7\1\x80" + _unit[1:] + _pull + b"\0" + _record_0,
    b"\7\x11" + _unit + _pull + b"\0" + _record_0,
    b"\x08\1" + _unit + _record_0,
    b"\x09\1" + _half_record(),
    b"\x0a\0" + _record_0 + _record_0,
    b"\x0b\x44hello\0you",
    b"\x0c\0\1\0\0" + b"".join(CONSUME_QUEUE_UNIT.pack(99 * n, 99, n) for n in range(4)),
    b"\x0d" + _json(0, {"msgId": "7F00", "queueId": "1"}, b"")[8:],
    b"\x0e" + _turns(_sends, 255),
    b"\x0e" + _turns(_sends * 2, 97),
    b"\x0f\0" + _RUNS,
    b"\x0f\x05\2\0\2\x28" + _unit * 2 + _RUNS,
    b"\x10\2" + INDEX_KEY.pack(7, 4096) * 6,
    b"\x11\3one\0two\0three",
    *(b"\x12\x15the secret" + frame for frame in _signed),
    b"\x12\xd1" + b"a secret of two blocks".ljust(104) + b"".join(_signed),
    b"\x12\x15the secret" + _json(11, _PULL | _SIGNATURE, b""),
    b"\x12\x14the secret" + b"".join(_signed),
    b"\x13\0" + b"".join(_acks),
    b"\x13\1" + b"".join(_acks),
    b"\x14" + _grpc_send(),
    b"\x15\xff" + _requests(5, 1),
    b"\x15\xff" + _requests(30, 3),
    b"\x15\x05" + _requests(5, 3),
    b"\x16\0\7" + _record_0,
    b"\x16\1\7" + _record_0,
    b"\x16\0\7" + _record_0[:4] + MAGIC_V2.to_bytes(4, "big") + _record_0[8:91],
    b"\5\2" + TIMED_KEY.pack(7, 4096, 1_700_000_000_000) * 2,
]
