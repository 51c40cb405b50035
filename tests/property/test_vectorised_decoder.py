"""The vectorised decoder says of any records what the slow one of protocol says."""

import contextlib
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from rockhopper.pipeline.decoder import Stop, decode, walk
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.schema import COLUMNS, arrow_schema
from rockhopper.protocol.addresses import host_bytes, ip_bytes
from rockhopper.protocol.compression import compress_zlib
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import (
    SYS_FLAG_COMPRESSED_ZLIB,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
    decode_messages,
    encode_batch,
    offset_message_id,
)
from rockhopper.protocol.store.record_head import MAGIC_V1, MAGIC_V2
from tests.support.records import encode_message

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Years that datetime knows, so that the expectation can be spelled.
TIMES_MS = st.integers(0, 4_000_000_000_000)
V4 = st.ip_addresses(v=4).map(str)
# IPv6 forms of IPv4 addresses do not come back as they were.
V6 = st.ip_addresses(v=6).map(str).filter(lambda ip: not ip.startswith("::ffff:"))
HOSTS = st.tuples(V4 | V6, st.integers(0, 65535))
# Separators too, anywhere, and bytes that are not UTF-8.
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "user_property_1", "user_property_2"])
PAIRS = st.lists(
    st.tuples(NAMES | st.text(max_size=12), st.text(max_size=12)).map(
        lambda pair: f"{pair[0]}\x01{pair[1]}\x02".encode()
    ),
    max_size=30,
).map(b"".join)
PIECES = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS\x01x", b"\xff", b"\xc3", "é".encode(), b"v"])
).map(b"".join)
PROPERTIES = PAIRS | PAIRS.map(lambda text: text[:-1]) | PIECES | st.binary(max_size=40)
TOPICS = st.text("abcXYZ-_%é", min_size=1, max_size=20) | st.sampled_from(["t" * 127, "t" * 128])
SYS_FLAGS = st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC, SYS_FLAG_COMPRESSED_ZLIB, 0x1, 0x80, 0x40])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    sys_flag = draw(SYS_FLAGS)
    body = draw(st.binary(max_size=60))
    properties = draw(PROPERTIES)
    if draw(st.integers(0, 4)) == 0:
        inner = st.lists(st.tuples(INT32, st.binary(max_size=20), PROPERTIES), min_size=1)
        body = encode_batch(draw(inner))
        sys_flag |= SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
        properties = b"INNER_BASE\x01%d\x02" % draw(st.integers(0, 2**40)) + properties
    if sys_flag & 0x1:
        body = compress_zlib(body)
    return encode_message(
        topic=draw(TOPICS),
        body=body,
        properties=properties,
        queue_id=draw(INT32),
        queue_offset=draw(INT64),
        commit_log_offset=draw(INT64),
        flag=draw(INT32),
        sys_flag=sys_flag,
        born_time_ms=draw(TIMES_MS),
        born_host=host_bytes(*draw(HOSTS)),
        store_time_ms=draw(TIMES_MS),
        store_host=host_bytes(*draw(HOSTS)),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
    )


@given(st.lists(records(), min_size=1, max_size=12))
def test_every_column_is_what_the_slow_decoder_says(parts: list[bytes]) -> None:
    log = b"".join(parts)
    found = walk(log, 0, len(log))

    batches = list(decode(log, found.offsets, (*COLUMNS, "crcOk"), broker_name="b-1", crc="flag"))

    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema((*COLUMNS, "crcOk"))
    rows = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
    assert rows == [expected(message) for message in decode_messages(log)]


@given(st.lists(PROPERTIES, min_size=1, max_size=20))
def test_properties_come_back_whatever_they_hold(strings: list[bytes]) -> None:
    log = b"".join(
        encode_message(topic="t", properties=text[:32767], commit_log_offset=7) for text in strings
    )
    found = walk(log, 0, len(log))

    (batch,) = decode(log, found.offsets, ("tags", "keys", "properties", "rawProperties"))

    for row, message, text in zip(
        batch.to_pylist(maps_as_pydicts="strict"), decode_messages(log), strings, strict=True
    ):
        assert row["properties"] == message.properties
        assert row["tags"] == message.properties.get("TAGS")
        assert row["keys"] == message.properties.get("KEYS")
        assert row["rawProperties"] == text


MAGIC = MAGIC_V1.to_bytes(4, "big")
# Some with what looks like a record's start.
BODIES = [b"", MAGIC, b"\0\0\0\x64" + MAGIC + bytes(200), b"\xda" * 50]


@given(st.integers(0), st.integers(0, 2), st.sampled_from([1, 300, 1 << 14]))
def test_records_of_any_sizes_are_walked_as_one_by_one(
    seed: int, damage_count: int, ahead_bytes: int
) -> None:
    random = Random(seed)
    bodies = [random.choice([*BODIES, bytes(random.randrange(60))]) for _ in range(200)]
    log = bytearray(b"".join(encode_message(topic="t", body=body) for body in bodies))
    for _ in range(damage_count):
        log[random.randrange(len(log))] ^= 1
    end = random.randrange(len(log) + 1)
    expected, at = [], 0
    while at < end and at + 91 <= len(log):
        size = int.from_bytes(log[at : at + 4], "big")
        is_record = bytes(log[at + 4 : at + 8]) in (MAGIC, MAGIC_V2.to_bytes(4, "big"))
        if not is_record or size < 91 or at + size > len(log):
            break
        expected.append(at)
        at += size

    with patch("rockhopper.pipeline.decoder.walk._AHEAD_BYTES_MIN", ahead_bytes):
        found = walk(log, 0, end)

    assert found.offsets.tolist() == expected
    assert found.stop is Stop.BLANK or found.end == at


@given(st.binary(max_size=300), st.lists(records(), max_size=3))
def test_any_bytes_are_walked_and_refused_without_a_crash(noise: bytes, parts: list[bytes]) -> None:
    log = bytearray(b"".join(parts) + noise)
    for index in range(0, len(log), 7):
        log[index] ^= noise[0] if noise else 1
    found = walk(log, 0, len(log))
    with contextlib.suppress(PipelineError):
        for batch in decode(log, found.offsets):
            batch.validate(full=True)


def expected(message: StoredMessage) -> dict[str, Any]:
    offset_id = offset_message_id(
        ip_bytes(message.store_host), message.store_port, message.commit_log_offset
    )
    is_damaged = None if not message.body else True
    body = message.decompressed_body()
    return {
        "topic": message.topic,
        "brokerName": "b-1",
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.properties.get("UNIQ_KEY", offset_id),
        "offsetMsgId": offset_id,
        "body": body,
        "tags": message.properties.get("TAGS"),
        "keys": message.properties.get("KEYS"),
        "properties": message.properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": moment(message.born_time_ms),
        "storeTimestamp": moment(message.store_time_ms),
        "bornHost": host(message.born_host, message.born_port),
        "storeHost": host(message.store_host, message.store_port),
        "reconsumeTimes": message.reconsume_times,
        "physOffset": message.commit_log_offset,
        "bodyCrc": message.body_crc,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "crcOk": is_damaged,
    }


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def host(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


@given(
    kinds=st.lists(st.tuples(st.integers(91, 400), st.integers(1, 60)), max_size=8),
    cut=st.integers(0, 500),
    shift=st.integers(0, 50),
)
def test_records_of_one_size_are_walked_together_and_none_is_left_out(
    kinds: list[tuple[int, int]], cut: int, shift: int
) -> None:
    sizes = [size for size, count in kinds for _ in range(count)]
    head = MAGIC_V1.to_bytes(4, "big")
    log = bytes(shift) + b"".join(
        size.to_bytes(4, "big") + head + bytes(size - 8) for size in sizes
    )
    log = log[: max(len(log) - cut, shift)]
    starts = [shift + sum(sizes[:number]) for number in range(len(sizes))]
    whole = [at for at, size in zip(starts, sizes, strict=True) if at + size <= len(log)]

    found = walk(log, shift, len(log))
    assert found.offsets.tolist() == whole
    middle = len(log) // 2
    assert walk(log, shift, middle).offsets.tolist() == [at for at in whole if at < middle]
