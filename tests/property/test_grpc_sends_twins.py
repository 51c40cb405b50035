"""Plain messages of RocketMQ 5 clients: compiled code reads and encodes them as Python does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.protocol.addresses import host_bytes
from rockhopper.protocol.grpc_v2.messages import METHODS
from rockhopper.protocol.properties import join_properties
from rockhopper.protocol.store.record_head import MAGIC_V2, RECORD_SIZE_BYTES_MIN
from tests.support.grpc_client import sending
from tests.support.records import encode_message

pytest.importorskip("rockhopper.broker.gateways.grpc._plain_calls", reason="it is not compiled")
from tests.fuzz import grpc_sends

Request = METHODS["SendMessage"].request
TEXTS = st.sampled_from(
    ["a", "b c", "id", "A" * 40] * 4 + ["", " ", "|", "\x01", "\x7f", "é", "x" * 5000]
)
NAMES = st.sampled_from([*"abcdefgh", "", "TAGS", "UNIQ_KEY"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Return a request that is nearly plain: few of its fields are unusual."""
    request: Any = Request()
    message = request.messages.add()
    message.topic.name = draw(st.sampled_from(["t", "orders"]))
    message.body = draw(st.sampled_from([b"body", b"body", b"", b"x" * 512, b"x" * 513]))
    system = message.system_properties
    system.message_id = "ID"
    unusual: dict[str, Any] = {
        "born_host": TEXTS,
        "born_timestamp.seconds": st.sampled_from([0, 1, 253402300799, 253402300800, -1]),
        "born_timestamp.nanos": st.sampled_from([1_999_999, 999_999_999, 1_000_000_000, -1]),
        "body_encoding": st.integers(0, 3),
        "body_digest.checksum": TEXTS,
        "delivery_attempt": st.integers(-1, 2),
        "delivery_timestamp.seconds": st.just(1),
        "lite_topic": TEXTS,
        "message_group": TEXTS,
        "message_id": TEXTS,
        "message_type": st.integers(0, 200),
        "priority": st.integers(-1, 3),
        "queue_id": st.integers(-1, 300),
        "queue_offset": st.integers(0, 3),
        "store_host": TEXTS,
        "tag": TEXTS,
        "trace_context": TEXTS,
    }
    for path in draw(st.lists(st.sampled_from(sorted(unusual)), max_size=4)):
        owner, _, name = path.rpartition(".")
        setattr(getattr(system, owner) if owner else system, name, draw(unusual[path]))
    system.keys.extend(draw(st.lists(TEXTS, max_size=3)))
    if draw(st.integers(0, 3)) == 0:
        message.topic.resource_namespace = draw(TEXTS)
    for name, text in draw(st.lists(st.tuples(NAMES, TEXTS), max_size=2)):
        message.user_properties[name] = text
    if draw(st.integers(0, 9)) == 0:
        request.messages.add().CopyFrom(message)
    encoded = bytearray(request.SerializeToString())
    for place, value in draw(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=1)):
        encoded[place % len(encoded)] = value
    return bytes(encoded[: len(encoded) - draw(st.sampled_from([0, 0, 0, 0, 1, 7]))])


@settings(max_examples=10 * settings().max_examples)
@given(requests())
def test_what_compiled_code_reads_is_what_python_reads(request: bytes) -> None:
    grpc_sends.check(request)


@given(st.text(max_size=200), st.integers(0, 2**63 - 1))
def test_replies_are_those_of_protobuf(message_id: str, offset: int) -> None:
    grpc_sends.check_reply(message_id, offset)


def test_what_clients_send_is_plain() -> None:
    request = sending("t", b"body", "ID", tag="red", keys=["k1", "k2"], queue_id=3)
    message = request.messages[0]
    message.topic.resource_namespace = "space"
    message.user_properties["colour"] = "blue"
    message.user_properties["size"] = ""
    system = message.system_properties
    system.born_host, system.message_type = "10.1.1.1", 1
    system.body_digest.checksum = "ABC"
    system.born_timestamp.FromMilliseconds(1_600_000_000_001)
    found = grpc_sends.check(request.SerializeToString())
    assert found is not None
    assert (found.topic, found.message_id, found.born_time_ms) == (
        "space%t",
        "ID",
        1_600_000_000_001,
    )


def test_a_request_that_ends_early_is_left_to_python() -> None:
    request = sending("t", b"body" * 20, "ID", tag="red").SerializeToString()
    assert grpc_sends.read(request) is not None
    assert not any(grpc_sends.read(request[:length]) for length in range(len(request)))


PROPERTIES = {
    "UNIQ_KEY": st.sampled_from(["ID"] * 9 + ["é"]),
    "TAGS": st.sampled_from(["red"] * 9 + ["é"]),
    "KEYS": st.sampled_from(["k", "k1 k2", " ", " a  bb ", "a b c d e f g h", "k" * 300]),
    "__BORNHOST": st.sampled_from(["10.1.1.1", "a" * 200]),
    "BORN_TIMESTAMP": st.just("17"),
    "PGROUP": st.just("g"),
    "WAIT": st.just("true"),
    "MSG_REGION": st.just("DefaultRegion"),
    "colour": st.sampled_from(["blue", "x" * 200]),
    "size": st.just("1"),
}
UNUSUAL = {
    "__SHARDINGKEY": st.just("g"),
    "TIMER_DELIVER_MS": st.just("1700000000000"),
    "TRAN_MSG": st.just("true"),
    "_SYS_MSG_PRIORITY_": st.just("3"),
    "DLQ_ORIGIN_TOPIC": st.just("t"),
    "TRACE_CONTEXT": st.just("00-1"),
    "é": st.just("x"),
}
TIMES_MS = st.sampled_from([0, 1_600_000_000_001, 253402128000000] * 5 + [253402128000001, -1])


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    """Return a record that is nearly plain."""
    names = draw(st.lists(st.sampled_from(sorted(PROPERTIES)), max_size=8, unique=True))
    properties = {name: draw(PROPERTIES[name]) for name in ["UNIQ_KEY", *names]}
    if draw(st.integers(0, 9)) == 9:
        name = draw(st.sampled_from(sorted(UNUSUAL)))
        properties[name] = draw(UNUSUAL[name])
    text = join_properties(properties)
    if draw(st.integers(0, 9)) == 9:
        text += draw(st.sampled_from(["colour\1twice\2", "TAGS\1b\2", "none\1\2", "\2", "\1a\2"]))
    record = encode_message(
        topic=draw(st.sampled_from(["t", "t" * 127, "t" * 200])),
        body=draw(st.sampled_from([b"", b"body", b"x" * 300])),
        properties=text[:-1] if draw(st.integers(0, 9)) == 9 else text,
        queue_id=draw(st.integers(0, 300)),
        queue_offset=draw(st.integers(0, 1 << 40)),
        sys_flag=draw(st.sampled_from([0, 0, 0, 0, 2, 4, 8])),
        born_time_ms=draw(TIMES_MS),
        born_host=draw(
            st.sampled_from([host_bytes("10.20.30.40", 5)] * 4 + [host_bytes("::1", 5)])
        ),
        store_time_ms=draw(TIMES_MS),
        store_host=draw(st.sampled_from([host_bytes("255.255.255.255", 65_535)] * 9 + [b"x" * 8])),
        reconsume_times=draw(st.integers(0, 3)),
    )
    if draw(st.integers(0, 4)) < 4:
        return record
    damaged = bytearray(record)
    damaged[draw(st.integers(0, len(record) - 1))] = draw(st.integers(0, 255))
    return bytes(damaged)


@settings(max_examples=10 * settings().max_examples)
@given(stored(), st.integers(0, 70_000), st.integers(-1, 5), st.sampled_from(["", "", "space"]))
def test_messages_are_encoded_the_same(
    record: bytes, invisible_ms: int, attempts: int, namespace: str
) -> None:
    topic = f"{namespace}%t" if namespace else "t"
    grpc_sends.check_delivery(record, topic, namespace, "1 2 3", invisible_ms, attempts)


def test_what_consumers_receive_is_plain() -> None:
    text = join_properties({"UNIQ_KEY": "ID", "TAGS": "red", "KEYS": "a b", "colour": "blue"})
    record = encode_message(topic="t", body=b"body", properties=text)
    assert grpc_sends.check_delivery(record, "space%t", "space", "1 2 3", 30_000, -1)


@pytest.mark.parametrize("size", range(0, 130, 7))
def test_a_record_that_is_cut_is_left_to_python(size: int) -> None:
    record = encode_message(topic="t", body=b"body", properties="UNIQ_KEY\1ID\2TAGS\1a\2")
    resized = len(record[:size]).to_bytes(4, "big") + record[4:size]
    for cut in (record[:size], resized):
        if 88 <= len(cut) < len(record):
            assert not grpc_sends.check_delivery(cut, "t", "", "1 2 3", 1, -1)


def test_a_record_of_version_2_needs_room_for_the_size_of_its_topic() -> None:
    compiled = pytest.importorskip("rockhopper.broker.gateways.grpc._plain_calls")
    smallest = RECORD_SIZE_BYTES_MIN.to_bytes(4, "big") + MAGIC_V2.to_bytes(4, "big")
    for body_size in (0, 4, 1 << 30):
        record = smallest.ljust(84, b"\0") + body_size.to_bytes(4, "big") + b"\0\2\0"
        assert len(record) == RECORD_SIZE_BYTES_MIN
        parts = "t", "", "", "1 2 3", 1, 0, frozenset[str]()
        assert compiled.encode_received(record, *parts) is None
