"""take_sends: which sends compiled code takes, where it stops, and what it says of them.

That what it takes is served as Python serves it is tests/property's.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from rockhopper.broker.hot.hot_codec import templates
from rockhopper.broker.hot.plain_sends import (
    Common,
    DeferredSends,
    Taken,
    common,
    count_up,
    take_nothing,
    take_sends,
)
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC
from rockhopper.protocol.store.message_codec import decode_message, encode_batch
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

pytestmark = pytest.mark.skipif(take_sends is take_nothing, reason="it is not compiled")

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
EXT = {
    "a": "group",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "17",
    "h": "9",
    "i": "UNIQ_KEY\x01AB\x02KEYS\x01k\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}
V1 = {
    "producerGroup": "group",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "17",
    "flag": "9",
    "properties": EXT["i"],
    "maxReconsumeTimes": "3",
}
OPENED: Any = object()
JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ


def header(ext: Mapping[str, object] = EXT, code: int = 310, **top: object) -> bytes:
    parts = {"code": code, "flag": 0, "language": "JAVA", "opaque": 5, "extFields": ext} | top
    return json.dumps(parts, separators=(",", ":")).encode()


def binary(ext: Mapping[str, str] = EXT, code: int = 310, flag: int = 0) -> bytes:
    command = Command(code, 5, flag, ext=dict(ext), serialize_type=BINARY)
    ((_, head, _),) = FrameDecoder().feed(encode_command(command))
    return head


class Pass:
    """A broker's part of one pass."""

    def __init__(self, body_size_bytes_max: int = 1000, *, takes_halves: bool = True) -> None:
        self.half_traffic = Traffic()
        self.tails = [QueueTail("orders", number, 40, is_batch=False) for number in range(3)]
        for tail in self.tails:
            tail.consume_queue = OPENED
        self.traffic = Traffic()
        made = templates("DefaultRegion", HOST, trace_on=True)
        delayed = [QueueTail(SCHEDULE_TOPIC, level, 70, is_batch=False) for level in range(3)]
        half = QueueTail(TRANSACTION_HALF_TOPIC, 0, 90, is_batch=False)
        for tail in (*delayed[:2], half):
            tail.consume_queue = OPENED
        waiting = DeferredSends(
            {(tail.topic, tail.queue_id): tail for tail in (*delayed, half)},
            (1000, 5000, 7000, 9000),
            SCHEDULE_TOPIC,
            TRANSACTION_HALF_TOPIC if takes_halves else None,
            self.half_traffic,
        )
        suffix = b"CLUSTER\x01c\x02"
        self.common: Common = common(made, HOST, suffix, body_size_bytes_max, waiting)

    def take(self, *frames: Frame, first: int = 0, room_end: int = 1 << 30) -> Taken | None:
        taken = self.ask(*frames, first=first, room_end=room_end)
        return None if isinstance(taken, str) else taken

    def ask(self, *frames: Frame, first: int = 0, room_end: int = 1 << 30) -> Taken | str | None:
        sendable = {"orders": (self.tails, self.traffic)}
        return take_sends(
            list(frames), first, sendable, self.common, HOST, 4096, room_end, 1_700_000_000_000
        )


def json_send(
    ext: Mapping[str, object] = EXT, body: bytes = b"hello", code: int = 310, **top: object
) -> Frame:
    return JSON, header(ext, code, **top), body


def answers(frames: bytes) -> list[Command]:
    return [decode_header(kind, head, body) for kind, head, body in FrameDecoder().feed(frames)]


@pytest.mark.parametrize(
    "frame",
    [
        json_send(),
        (BINARY, binary(), b"hello"),
        (JSON, header(V1, code=10), b"hello"),
        (BINARY, binary(V1, code=10), b"hello"),
    ],
)
def test_a_send_is_stored_and_answered(frame: Frame) -> None:
    one = Pass()
    taken = one.take(frame)
    assert taken is not None
    count, records, runs, packed_keys, counted, owed, _ = taken
    message = decode_message(records)
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 1, 40)
    assert (message.body, message.flag, message.born_time_ms) == (b"hello", 9, 17)
    assert message.properties == {"UNIQ_KEY": "AB", "KEYS": "k", "CLUSTER": "c"}
    end = 4096 + len(records)
    unit = CONSUME_QUEUE_UNIT.pack(4096, len(records), 0)
    assert (count, [msgspec.structs.astuple(run) for run in runs]) == (
        1,
        [(one.tails[1], 4096, end, 40, 1, [unit], 0)],
    )
    assert [offset for _, offset in INDEX_KEY.iter_unpack(packed_keys)] == [4096, 4096]
    assert counted == [(one.traffic, 1, 1, len(records))]
    ((frames, log_offset, waits),) = owed
    assert (log_offset, waits) == (4096, True)
    (answer,) = answers(frames)
    assert (answer.code, answer.opaque, answer.serialize_type) == (0, 5, frame[0])
    assert answer.ext == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": "7F00000100002A9F0000000000001000",
        "queueId": "1",
        "queueOffset": "40",
        "transactionId": "AB",
    }
    assert one.tails[1].next_offset == 40


def test_messages_of_a_queue_make_one_run_whatever_stands_between_them() -> None:
    one = Pass()
    taken = one.take(*(json_send(EXT | {"e": queue}) for queue in "1210"))
    assert taken is not None
    assert [(run.tail.queue_id, run.first_offset, run.count) for run in taken[2]] == [
        (1, 40, 2),
        (2, 40, 1),
        (0, 40, 1),
    ]
    offsets = [
        [unit[0] for unit in CONSUME_QUEUE_UNIT.iter_unpack(run.units[0])] for run in taken[2]
    ]
    size = len(taken[1]) // 4
    second = decode_message(taken[1][2 * size : 3 * size])
    assert (second.queue_id, second.queue_offset, second.commit_log_offset) == (
        1,
        41,
        offsets[0][1],
    )
    assert offsets == [[4096, 4096 + 2 * size], [4096 + size], [4096 + 3 * size]]
    assert [(run.start, run.end) for run in taken[2]] == [
        (4096, 4096 + 3 * size),
        (4096 + size, 4096 + 2 * size),
        (4096 + 3 * size, 4096 + 4 * size),
    ]
    keys = [offset for _, offset in INDEX_KEY.iter_unpack(taken[3])]
    assert keys == sorted(keys)


def test_so_many_queues_have_their_messages_in_one_pass() -> None:
    one = Pass()
    tails = [[QueueTail(f"t{n}", 0, 0, is_batch=False)] for n in range(400)]
    sendable = {f"t{n}": (tail, Traffic()) for n, tail in enumerate(tails)}
    for (tail,) in tails:
        tail.consume_queue = OPENED
    later = EXT["i"] + "DELAY\x011\x02"
    for properties in (EXT["i"], later):
        frames = [json_send(EXT | {"b": f"t{n}", "e": "0", "i": properties}) for n in range(400)]
        taken = take_sends(frames, 0, sendable, one.common, HOST, 0, 1 << 30, 1_700_000_000_000)
        assert taken is not None
        assert taken[0] == len(taken[4]) == 384
        assert len(taken[2]) == (1 if properties == later else 384)
        again = take_sends(frames, 384, sendable, one.common, HOST, 0, 1 << 30, 1_700_000_000_000)
        assert again is not None
        assert again[0] == 16


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_a_batch_is_answered_by_all_its_ids(kind: int) -> None:
    body = encode_batch([(number, b"x" * number, b"") for number in range(3)])
    ext = EXT | {"m": "true", "i": "WAIT\x01false\x02"}
    one = Pass()
    head = header(ext, code=320) if kind == JSON else binary(ext, code=320)
    taken = one.take((kind, head, body))
    assert taken is not None
    assert (taken[0], taken[2][0].count, taken[4][0][1:3]) == (1, 3, (3, 1))
    ((frames, _, waits),) = taken[5]
    (answer,) = answers(frames)
    assert not waits
    assert answer.ext is not None
    units = list(CONSUME_QUEUE_UNIT.iter_unpack(taken[2][0].units[0]))
    assert answer.ext["msgId"] == ",".join(f"7F00000100002A9F{unit[0]:016X}" for unit in units)
    assert (answer.ext["queueOffset"], "transactionId" in answer.ext) == ("40", False)


def test_answers_that_wait_and_those_that_do_not_are_kept_apart() -> None:
    unwaiting = EXT | {"i": EXT["i"] + "WAIT\x01false\x02"}
    taken = Pass().take(json_send(), json_send(), json_send(unwaiting), json_send())
    assert taken is not None
    sizes = [len(answers(frames)) for frames, _, _ in taken[5]]
    assert (sizes, [waits for _, _, waits in taken[5]]) == ([2, 1, 1], [True, False, True])
    assert taken[5][0][1] == 4096


def test_a_oneway_send_is_stored_and_not_answered() -> None:
    taken = Pass().take(json_send(flag=2))
    assert taken is not None
    assert (taken[0], taken[5]) == (1, [])


def test_it_begins_where_it_is_told_and_stops_in_front_of_what_it_does_not_know() -> None:
    pull: Frame = (JSON, b'{"code":11,"opaque":1}', b"")
    one = Pass()
    taken = one.take(pull, json_send(), json_send(), pull, json_send(), first=1)
    assert taken is not None
    assert taken[0] == 2
    assert one.take(pull, json_send()) is None
    assert one.take(first=0) is None
    assert one.take(pull, first=9) is None


def test_it_stops_in_front_of_what_needs_another_file() -> None:
    one = Pass()
    single = one.take(json_send())
    assert single is not None
    size = len(single[1])
    for room, count in ((3 * size, 3), (3 * size - 1, 2)):
        taken = one.take(*[json_send()] * 4, room_end=4096 + room)
        assert taken is not None
        assert taken[0] == count
    assert one.take(json_send(), room_end=4096 + size - 1) is None
    batch: Frame = (JSON, header(EXT | {"m": "true"}, 320), encode_batch([(0, b"x", b"")] * 2))
    whole = one.take(batch)
    assert whole is not None
    assert one.take(batch, room_end=4096 + len(whole[1]) - 1) is None
    assert one.take(batch, room_end=4096 + len(whole[1])) is not None


def test_a_delayed_message_waits_in_the_queue_of_its_level() -> None:
    one = Pass()
    delayed = json_send(EXT | {"i": "DELAY\x012\x02UNIQ_KEY\x01AB\x02TAGS\x01red\x02"})
    taken = one.take(json_send(), delayed, json_send())
    assert taken is not None
    count, records, runs, _, counted, owed, halves = taken
    (plain, waiting) = runs
    assert (count, plain.count, waiting.count, halves) == (3, 2, 1, None)
    message = decode_message(records[waiting.start - 4096 :])
    assert (message.topic, message.queue_id, message.queue_offset) == (SCHEDULE_TOPIC, 1, 70)
    assert list(message.properties.items())[-3:] == [
        ("CLUSTER", "c"),
        ("REAL_TOPIC", "orders"),
        ("REAL_QID", "1"),
    ]
    assert CONSUME_QUEUE_UNIT.unpack(waiting.units[0])[2] == 1_700_000_000_000 + 5000
    assert counted == [(one.traffic, 3, 3, len(records))]
    told = answers(owed[0][0])[1].ext
    assert told is not None
    assert (told["queueId"], told["queueOffset"]) == ("1", "70")


def test_a_half_message_waits_aside_and_is_told_of() -> None:
    one = Pass()
    text = "TRAN_MSG\x01true\x02PGROUP\x01senders\x02UNIQ_KEY\x01AB\x02"
    half = json_send(EXT | {"i": text, "f": "5", "e": "2"})
    taken = one.take(json_send(), half)
    assert taken is not None
    _, records, runs, _, counted, owed, halves = taken
    offset = runs[1].start
    message = decode_message(records[offset - 4096 :])
    assert (message.topic, message.queue_id, message.queue_offset) == (
        TRANSACTION_HALF_TOPIC,
        0,
        90,
    )
    assert message.sys_flag == 1
    assert list(message.properties.items())[-4:] == [
        ("CLUSTER", "c"),
        ("__transactionId__", "AB"),
        ("REAL_TOPIC", "orders"),
        ("REAL_QID", "2"),
    ]
    assert halves == [(90, offset, "senders")]
    assert [(traffic, messages) for traffic, messages, _, _ in counted] == [
        (one.traffic, 1),
        (one.half_traffic, 1),
    ]
    told = answers(owed[0][0])[1].ext
    assert told is not None
    assert (told["queueId"], told["queueOffset"]) == ("2", "90")
    assert Pass(takes_halves=False).take(half) is None


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in EXT.items() if name not in names}


USUAL = header()
TAKEN_AS_WELL: list[bytes] = [
    header(EXT | {"e": 1, "g": 17, "m": False, "k": True}),
    header(without("i") | {"i": EXT["i"] + "é\x01ü\x02"}),
    USUAL.replace(b"AB", b"A\\u0042"),
    USUAL.replace(b"KEYS", b"a\\u0001\\u00e9\\u20ac\\n\\/\\\\\\u0002KEYS"),
    header(EXT | {"zz": "ignored", "n": "broker-a"}),
    header(without("c", "d", "j", "k", "m")),
    header(remark=None, version=479, serializeTypeCurrentRPC="JSON", x=True),
    header(EXT | {"g": "-1", "h": "-7"}),
]


@pytest.mark.parametrize("head", TAKEN_AS_WELL)
def test_what_clients_write_otherwise_is_taken(head: bytes) -> None:
    taken = Pass().take((JSON, head, b""))
    assert taken is not None


FOR_PYTHON: list[bytes] = [
    b"",
    b"{",
    b'{"code":',
    b'{"code":310',
    b'{"code":310}',
    header(code=311),
    header(code=3100),
    USUAL + b" ",
    USUAL[:-1],
    USUAL.replace(b":5", b":5 "),
    USUAL.replace(b'"opaque":5', b'"opaque":05'),
    USUAL.replace(b'"opaque":5', b'"opaque":-0'),
    USUAL.replace(b'"opaque":5', b'"opaque":5.0'),
    USUAL.replace(b'"opaque":5', b'"opaque":2147483648'),
    USUAL.replace(b'"opaque":5', b'"opaque":"5"'),
    USUAL.replace(b'"opaque":5,', b""),
    USUAL.replace(b'"opaque":5', b'"opaque":5,"opaque":6'),
    USUAL.replace(b'"language":"JAVA"', b'"code":320'),
    USUAL.replace(b'"language":"JAVA"', b'"language":{}'),
    USUAL.replace(b'"language":"JAVA"', b'"language":nil'),
    USUAL.replace(b'"JAVA"', '"JÄVA"'.encode()),
    USUAL.replace(b'"JAVA"', b'"J\\u0041VA"'),
    USUAL.replace(b'"JAVA"', b'"J\tVA"'),
    header(flag=1),
    header(flag=3),
    header(extFields=None),
    header({}),
    header(EXT | {"b": "unknown"}),
    header(EXT | {"e": "3"}),
    header(EXT | {"e": "-1"}),
    header(EXT | {"e": ""}),
    header(EXT | {"e": " 1"}),
    header(EXT | {"e": "01"}),
    header(EXT | {"e": "+1"}),
    header(EXT | {"e": None}),
    header(EXT | {"e": "1" * 19}),
    header(EXT | {"f": "4"}),
    header(EXT | {"f": "128"}),
    header(EXT | {"h": "2147483648"}),
    header(EXT | {"m": "true"}),
    header(EXT | {"m": "FALSE"}),
    header(EXT | {"rh": "1"}),
    header(EXT | {"b": 7}),
    header(EXT | {"a": None}),
    header(without("a")),
    header(without("g")),
    header(without("i")),
    USUAL.replace(b'"a":"group"', b'"a":"group","a":"group"'),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x015\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x010\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x01x\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x014\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x013\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x011\x02a\x01b\x02a\x01b\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x011\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x011\x02", "f": "4"}),
    header(EXT | {"i": "DELAY\x011\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TRAN_MSG\x01true\x02", "f": "4"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02", "f": "8"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02", "j": "1"}),
    header(EXT | {"i": "UNIQ_KEY\x01A B\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TAGS\x01ü\x02"}),
    header(EXT | {"i": EXT["i"] + "a\x01😀\x02"}),
    USUAL.replace(b"KEYS", b"\xff\xfe"),
    USUAL.replace(b"KEYS", b"\xed\xa0\x80"),
    USUAL.replace(b"KEYS", b"\xc0\x80"),
    USUAL.replace(b"KEYS", b"\xf4\x90\x80\x80"),
    USUAL.replace(b"KEYS", b"\xe0\x80\x80"),
    USUAL.replace(b"KEYS", b"\xf0\x80\x80\x80"),
    USUAL.replace(b"KEYS", b"\xe2\x82"),
    USUAL.replace(b"KEYS", b"\xe2\x82("),
    USUAL.replace(b"KEYS", b"\xf8\x88\x80\x80\x80"),
    USUAL.replace(b"AB", b"A\\x42"),
    USUAL.replace(b"AB", b"A\\u00"),
    USUAL.replace(b"AB", b"A\nB"),
    USUAL.replace(b"AB\\u0002KEYS\\u0001k\\u0002", b"AB\\"),
    header(V1 | {"unknown": "x"}, code=10),
    header(V1 | {"batch": "true"}, code=10),
    header(V1 | {"maxReconsumeTimes": "x"}, code=10),
    header({name: value for name, value in V1.items() if name != "defaultTopic"}, code=10),
]


@pytest.mark.parametrize("head", FOR_PYTHON)
def test_whatever_is_a_little_unusual_is_left_to_python(head: bytes) -> None:
    assert Pass().take((JSON, head, b"")) is None


BINARY_HEAD = binary()
FIELDS_AT = 21


@pytest.mark.parametrize(
    "head",
    [
        b"",
        BINARY_HEAD[:20],
        BINARY_HEAD[:-1],
        BINARY_HEAD + b"\0",
        b"\0\x0b" + BINARY_HEAD[2:],
        BINARY_HEAD[:13] + b"\0\0\0\1x" + BINARY_HEAD[17:],
        BINARY_HEAD[:FIELDS_AT] + b"\xff\xff" + BINARY_HEAD[FIELDS_AT + 2 :],
        BINARY_HEAD[: FIELDS_AT + 3] + b"\xff\xff\xff\xff" + BINARY_HEAD[FIELDS_AT + 7 :],
        BINARY_HEAD.replace(b"AB", b"A\xff"),
        BINARY_HEAD.replace(b"group", b"gr\xc3\xbcp"),
        binary(EXT | {f"x{number}": "y" for number in range(64)}),
        binary(flag=1),
    ],
)
def test_a_binary_header_is_left_to_python_likewise(head: bytes) -> None:
    assert Pass().take((BINARY, head, b"")) is None


@pytest.mark.parametrize("kind", [2, 7, 1 << 70])
def test_other_serialisations_are_left_to_python(kind: int) -> None:
    assert Pass().take((kind, header(), b"")) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 10,
        encode_batch([(0, b"x", b"DELAY\x011\x02")]),
        encode_batch([(0, b"", b"")])[:-1],
    ],
)
def test_a_batch_that_is_not_plain_is_left_to_python(body: bytes) -> None:
    one = Pass()
    assert one.take((JSON, header(EXT | {"m": "true"}, 320), body)) is None
    delayed = EXT | {"m": "true", "i": "DELAY\x011\x02"}
    assert one.take((JSON, header(delayed, 320), encode_batch([(0, b"x", b"")]))) is None


@pytest.mark.parametrize("code", [10, 310])
def test_the_topic_is_named_that_nobody_admitted(code: int) -> None:
    ext = V1 | {"topic": "others"} if code == 10 else EXT | {"b": "others"}
    one = Pass()
    assert one.ask(json_send(ext, code=code), json_send()) == "others"
    taken = one.take(json_send(), json_send(ext, code=code))
    assert taken is not None
    assert taken[0] == 1
    wrong = {"sysFlag": "x"} if code == 10 else {"f": "x"}
    assert one.ask(json_send(ext | wrong, code=code)) is None


ODD = ["a\x01\x02", "junk\x02", "\x01b\x02", "a\x01b\x02a\x01c\x02", "a\x01b\x02\x02"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_odd_properties_with_long_names_are_read_and_written_anew_by_python(
    odd: str, kind: int
) -> None:
    one = Pass()
    for text in (odd + EXT["i"], EXT["i"] + odd):
        long_names = V1 | {"properties": text}
        head = header(long_names, 10) if kind == JSON else binary(long_names, 10)
        assert one.take((kind, head, b"hello")) is None
        short = EXT | {"i": text}
        head = header(short) if kind == JSON else binary(short)
        taken = one.take((kind, head, b"hello"))
        assert taken is not None
        assert odd.encode() in taken[1]


@pytest.mark.parametrize("left_out", ["c", "d"])
def test_a_batch_with_binary_headers_has_all_fields(left_out: str) -> None:
    ext = {name: text for name, text in EXT.items() if name != left_out} | {"m": "true"}
    body = encode_batch([(0, b"x", b"")])
    one = Pass()
    assert one.take((JSON, header(ext, 320), body)) is not None
    assert one.take((BINARY, binary(ext, 320), body)) is None
    assert one.take((BINARY, binary(EXT | {"m": "true"}, 320), body)) is not None


def test_what_was_taken_is_counted() -> None:
    one, other = Traffic(), Traffic()
    one.messages = one.calls = one.bytes = 1 << 40
    count_up([(one, 3, 1, 300), (other, 1, 1, 1 << 33), (one, 1, 1, 100)])
    assert (one.messages, one.calls, one.bytes) == ((1 << 40) + 4, (1 << 40) + 2, (1 << 40) + 400)
    assert (other.messages, other.calls, other.bytes) == (1, 1, 1 << 33)
    for wrong in ([one], [(one, 1, 1)], [(object(), 1, 1, 1)], [(one, 1, "1", 1)]):
        with pytest.raises(TypeError):
            count_up(wrong)  # type: ignore[arg-type]


def test_a_body_that_is_too_large_is_left_to_python() -> None:
    assert Pass(5).take(json_send(body=b"12345")) is not None
    assert Pass(5).take(json_send(body=b"123456")) is None


def wrong_calls() -> list[Callable[[], object]]:
    one = Pass()
    good = ([json_send()], 0, {"orders": (one.tails, one.traffic)}, one.common, HOST, 0, 1 << 30, 1)

    def call(at: int, value: object) -> Callable[[], object]:
        return lambda: take_sends(*good[:at], value, *good[at + 1 :])

    return [
        take_sends,
        call(0, ()),
        call(0, ["frame"]),
        call(0, [(0, "text", b"")]),
        call(1, -1),
        call(1, "0"),
        call(2, []),
        call(2, {"orders": ([], 1, 2)}),
        call(2, {"orders": ([object()] * 3, one.traffic)}),
        call(3, ()),
        call(3, (*one.common[:4], (), *one.common[5:])),
        call(4, "host"),
        call(5, 1 << 70),
    ]


@pytest.mark.parametrize("number", range(13))
def test_a_call_that_makes_no_sense_raises(number: int) -> None:
    with pytest.raises((TypeError, OverflowError, AttributeError)):
        wrong_calls()[number]()


def test_the_first_message_of_a_queue_is_left_to_python() -> None:
    one = Pass()
    one.tails[1].consume_queue = None
    assert one.take(json_send()) is None
