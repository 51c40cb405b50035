"""The client's compiled functions do what their Python twins do, on any input."""

import gc
import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.client.network.plain_answers import read_command
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage, receive_in_python
from rockhopper.client.sending import plain_batches
from rockhopper.client.sending.plain_batches import encode_in_python
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.headers.header_fields import LANGUAGE_BY_NAME
from rockhopper.protocol.message import Message
from rockhopper.protocol.store.message_codec import decode_batch, host_bytes
from tests.support.records import encode_message

_messages = pytest.importorskip("rockhopper.client._messages", reason="it is not compiled")
_messages.set_received(ReceivedMessage)
_messages.set_message(Message)
_messages.set_command(Command, LANGUAGE_BY_NAME)

QUEUE = MessageQueue("orders", "a", 0)
BEFORE, AFTER = b"UNIQ_KEY\x01", b"\x02WAIT\x01true\x02"

RECORDS = st.builds(
    encode_message,
    topic=st.sampled_from(["orders", "orders", "orders", "order", "orders2", "t" * 127, "t" * 128]),
    body=st.binary(max_size=40),
    properties=st.dictionaries(st.text("ab", min_size=1), st.text("cd", min_size=1), max_size=2),
    queue_offset=st.integers(0, 1 << 62),
    sys_flag=st.sampled_from([0, 0, 0, 0, 1, 2, 0x40, 0x80, 0x301]),
    born_host=st.sampled_from([host_bytes("10.0.0.1", 5)] * 4 + [host_bytes("::1", 5)]),
)
NAMES = ("queue", "queue_offset", "size_bytes", "deserializer", "_body", "_rest")


def fields(message: ReceivedMessage) -> list[Any]:
    assert not hasattr(message, "_stored")
    return [getattr(message, name) for name in NAMES]


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Consecutive records, some of them damaged, and perhaps without their end."""
    data = bytearray(b"".join(draw(st.lists(RECORDS, max_size=4))))
    for place, value in draw(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=2)):
        if data:
            data[place % len(data)] = value
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 2, 60]))])


@given(data=answers(), topic=st.sampled_from(["orders", "order", "", "t" * 127, "t" * 128]))
def test_answers_are_split_as_python_does(data: bytes, topic: str) -> None:
    for start in (0, len(data) // 2, len(data)):
        compiled, end = _messages.receive(QUEUE, data, start, topic.encode())
        expected, expected_end = receive_in_python(QUEUE, data, start, topic.encode())
        assert end == expected_end
        assert [fields(each) for each in compiled] == [fields(each) for each in expected]
        assert all(type(each) is ReceivedMessage for each in compiled)


MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["orders"] * 9 + ["order"]),
    body=st.binary(max_size=30),
    flag=st.one_of(
        st.just(0), st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from([1 << 31, 1 << 70])
    ),
    tags=st.sampled_from([None] * 9 + ["t"]),
    keys=st.sampled_from([()] * 9 + [("k",)]),
    properties=st.sampled_from([{}] * 9 + [{"a": "b"}]),
    sharding_key=st.sampled_from([None] * 9 + ["s"]),
    priority=st.sampled_from([None] * 9 + [1]),
    delay_s=st.sampled_from([None] * 9 + [1.0]),
    wait_stored=st.sampled_from([True] * 9 + [False]),
)


@given(
    messages=st.lists(MESSAGES, min_size=1, max_size=6),
    size_max=st.sampled_from([1 << 22, 200, 120]),
    start=st.sampled_from(["7F000001002A", ""]),
    number=st.integers(0, 1 << 40),
)
def test_batches_are_encoded_as_python_does(
    messages: list[Message], size_max: int, start: str, number: int
) -> None:
    arguments = messages, "orders", size_max, BEFORE, start, AFTER, number
    assert _messages.encode_plain(*arguments) == encode_in_python(*arguments)


def test_a_plain_batch_has_the_messages_and_their_ids() -> None:
    messages = [Message("orders", b"one", flag=7), Message("orders", b"two")]
    encoded = plain_batches.encode_plain_batch(messages, 1000, "AB", 0xFFFF)
    assert encoded is not None
    body, ids = encoded
    assert ids == ["ABFFFF", "AB0000"]
    assert decode_batch(body) == [
        (7, b"one", BEFORE + b"ABFFFF" + AFTER),
        (0, b"two", BEFORE + b"AB0000" + AFTER),
    ]


TEXTS = st.one_of(
    st.sampled_from(["", "7", "msgId", "queueId", "a b", "7F00,7F01"]),
    st.text(max_size=8),
    st.text(st.characters(codec="ascii"), max_size=8),
)
VALUES = st.one_of(
    st.integers(0, 5000),
    st.integers(-(1 << 33), 1 << 33),
    TEXTS,
    st.none(),
    st.sampled_from(["JAVA", "PYTHON", "GO", "OTHER", "JSON", True, 1.5, [], {}, {"a": "b"}]),
)
NUMBERS = st.integers(0, (1 << 31) - 1)
PLAIN = {
    "code": NUMBERS,
    "extFields": st.dictionaries(TEXTS, TEXTS, max_size=4),
    "flag": st.integers(0, 3),
    "language": st.sampled_from(["JAVA", "PYTHON", "CPP", "Cobol"]),
    "opaque": NUMBERS,
    "remark": TEXTS,
    "serializeTypeCurrentRPC": st.just("JSON"),
    "version": st.integers(0, 500),
}


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """JSON headers: most are plain, some have other values, blanks, escapes, repeats or damage."""
    names = draw(st.lists(st.sampled_from([*PLAIN, "language"]), max_size=9))
    fields = [
        (name, draw(PLAIN[name] if draw(st.integers(0, 19)) else VALUES))
        for name in draw(st.sampled_from([names, names, list(PLAIN), [*names, "else"]]))
        if name in PLAIN
    ]
    separators = draw(st.sampled_from([(",", ":")] * 9 + [(", ", ": ")]))
    ascii_only = draw(st.booleans())
    members = (
        json.dumps({name: value}, separators=separators, ensure_ascii=ascii_only)[1:-1]
        for name, value in fields
    )
    text = bytearray(("{" + separators[0].join(members) + "}").encode(errors="replace"))
    if not draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(text) - 1))
        text[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(text)


def read(function: Any, header: bytes) -> Any:
    try:
        return function(header)
    except MalformedHeaderError as error:
        return str(error)


@settings(max_examples=500)
@given(header=headers())
def test_headers_are_read_as_python_does(header: bytes) -> None:
    compiled = _messages.read_answer(header, b"body")
    expected = read(lambda header: decode_header(0, header, b"body"), header)
    assert compiled is None or compiled == expected
    assert read(lambda header: read_command(0, header, b"body"), header) == expected


def test_a_broker_s_usual_header_is_plain() -> None:
    ext = {"msgId": "7F00000100002A9F0000000000000400", "queueId": "1", "queueOffset": "0"}
    for remark in (None, "FOUND"):
        frame = encode_command(Command(0, 7, 1, remark, ext))
        header = frame[8:]
        assert _messages.read_answer(header, b"x") == decode_header(0, header, b"x")
        assert _messages.read_answer(header, b"x") is not None
        assert _messages.read_answer(header + b" ", b"") is None
        assert all(_messages.read_answer(header[:end], b"") is None for end in range(len(header)))


def test_more_fields_than_a_header_may_have_are_left_to_python() -> None:
    frame = encode_command(Command(0, ext={str(number): "" for number in range(257)}))
    assert _messages.read_answer(frame[8:], b"") is None
    with pytest.raises(MalformedHeaderError, match="257 ext fields"):
        read_command(0, frame[8:], b"")


class Special(Message):
    """Its fields may mean something else."""


@pytest.mark.parametrize("encode", [_messages.encode_plain, encode_in_python])
def test_what_is_no_plain_message_is_left_to_the_general_way(encode: Any) -> None:
    incomplete, no_bytes = Message("orders"), Message("orders")
    no_bytes.body = bytearray(b"x")  # type: ignore[assignment]
    incomplete.flag = True
    for odd in (Special("orders"), no_bytes, incomplete):
        assert encode([Message("orders"), odd], "orders", 999, BEFORE, "A", AFTER, 0) is None


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (QUEUE, b"", 0),
        (QUEUE, bytearray(), 0, b"t"),
        (QUEUE, b"", 0, "t"),
        (QUEUE, b"", "0", b"t"),
        (QUEUE, b"", 1, b"t"),
        (QUEUE, b"", -1, b"t"),
        (QUEUE, b"", 1 << 70, b"t"),
    ],
)
def test_wrong_arguments_of_receive_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        _messages.receive(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ((), "t", 9, b"", "", b"", 0),
        ([], b"t", 9, b"", "", b"", 0),
        ([], "t", "9", b"", "", b"", 0),
        ([], "t", 9, "", "", b"", 0),
        ([], "t", 9, b"", "ä", b"", 0),
        ([], "t", 9, b"", "", "", 0),
        ([], "t", 9, bytes(300), "", b"", 0),
        ([], "t", 9, b"", "", b"", 1 << 70),
    ],
)
def test_wrong_arguments_of_encode_plain_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        _messages.encode_plain(*arguments)


@pytest.mark.parametrize("arguments", [(), (b"",), ("", b""), (b"", ""), (b"", b"", b"")])
def test_wrong_arguments_of_read_answer_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        _messages.read_answer(*arguments)


def test_classes_without_the_slots_are_refused() -> None:
    def set_command(kind: Any) -> None:
        _messages.set_command(kind, {})

    with pytest.raises(TypeError):
        _messages.set_command(Command, None)
    for set_class in (_messages.set_received, _messages.set_message, set_command):
        for wrong in (object, 1, type("Plain", (), dict.fromkeys(NAMES, 1))):
            with pytest.raises((TypeError, AttributeError)):
                set_class(wrong)
    assert _messages.receive(QUEUE, encode_message(topic="orders"), 0, b"orders")[0]


def test_nothing_keeps_a_reference_that_it_should_not() -> None:
    queue = MessageQueue("orders", "b", 1)
    data = encode_message(topic="orders", body=b"body")
    batch = [Message("orders", b"x" * 300)]
    gc.collect()
    before = sys.getrefcount(queue), sys.getrefcount(None), sys.getrefcount(data)
    for _ in range(100):
        _messages.receive(queue, data + b"rest", 0, b"orders")
        _messages.encode_plain(batch, "orders", 999, BEFORE, "A", AFTER, 0)
        _messages.encode_plain(batch, "other", 999, BEFORE, "A", AFTER, 0)
        _messages.read_answer(b'{"code":9,"language":"JAVA","extFields":{"a":"b"}}', data)
        _messages.read_answer(b'{"code":9,"language":"JAVA","extFields":{"a":"b"},', data)
    gc.collect()
    after = sys.getrefcount(queue), sys.getrefcount(None), sys.getrefcount(data)
    assert (after[0], after[2]) == (before[0], before[2])
    assert abs(after[1] - before[1]) < 50
