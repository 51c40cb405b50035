"""Inputs to begin with: what each target does gladly."""

import json

from rockhopper.broker.store.log.encoding import (
    TIMED_KEY,
    encode_plain,
    encode_record,
    queue_constants,
)
from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import encode_frame
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from rockhopper.protocol.store.message_codec import encode_batch

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


def _record(log_offset: int) -> tuple[bytes, bytes]:
    constants = queue_constants("orders", 1)
    head = constants, log_offset, 7, 1_700_000_000_000, _HOST, b"body", _PROPERTIES, b""
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
SEEDS = [
    *(b"\0" + bytes([127]) + frame for frame in _sends),
    b"\0\xff" + b"".join(_sends),
    b"\1\1" + _record_0,
    b"\2\1" + _unit + _record_0,
    b"\3" + bytes([len(_PROPERTIES)]) + _PROPERTIES.encode() + b"body",
    b"\4\0" + _BATCH,
    b"\4\0" + encode_batch([(n, b"x" * n, _PROPERTIES.encode()) for n in range(3)]),
    b"\6\x40" + b"".join(_sends) + b"\0\0\0",
    b"\7\1" + _unit + _pull + b"\0" + _record_0,
    b"\7\1\x80" + _unit[1:] + _pull + b"\0" + _record_0,
    b"\x08\1" + _unit + _record_0,
    b"\x09\1" + _half_record(),
    b"\5\2" + TIMED_KEY.pack(7, 4096, 1_700_000_000_000) * 2,
]
