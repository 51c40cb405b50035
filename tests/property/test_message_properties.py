"""Messages: every record and batch survives; no bytes raise anything unforeseen."""

from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.addresses import host_bytes, host_text
from rockhopper.protocol.compression import compress_zlib, decompress
from rockhopper.protocol.errors import CompressionError, MalformedBatchError, MalformedMessageError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import decode_properties, encode_properties
from rockhopper.protocol.store.message_codec import (
    body_crc,
    check_record,
    decode_batch,
    decode_message,
    decode_messages,
    decode_offset_message_id,
    encode_batch,
    encode_stored_message,
    offset_message_id,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH
from tests.support.records import encode_message

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# IPv6 forms of IPv4 addresses do not come back as they were.
IPS = st.ip_addresses().map(str).filter(lambda ip: not ip.startswith("::ffff:"))
PLAIN = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20
)
PROPERTIES = st.dictionaries(PLAIN, PLAIN, max_size=6)
TOPICS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=300)


@st.composite
def stored_messages(draw: st.DrawFn) -> StoredMessage:
    body = draw(st.binary(max_size=200))
    born, store = draw(IPS), draw(IPS)
    flags = draw(INT32) & ~(SYS_FLAG_INNER_BATCH | 0x30)
    flags |= (0x10 if ":" in born else 0) | (0x20 if ":" in store else 0)
    message = StoredMessage(
        draw(TOPICS),
        draw(INT32),
        draw(INT64),
        draw(INT64),
        body,
        draw(INT32),
        flags,
        draw(INT64),
        born,
        draw(INT32),
        draw(INT64),
        store,
        draw(INT32),
        draw(INT32),
        draw(INT64),
        body_crc(body),
        draw(PROPERTIES),
    )
    message.size_bytes = len(encode_stored_message(message))
    return message


@given(message=stored_messages())
def test_message_survives_its_record(message: StoredMessage) -> None:
    record = encode_stored_message(message)
    assert decode_message(record, check_crc=True) == message
    check = check_record(b"x" + record, 1, len(record), message.commit_log_offset)
    assert check.is_ok
    assert (check.topic, check.size_bytes) == (message.topic, len(record))
    assert check.properties == message.properties


@given(messages=st.lists(stored_messages(), max_size=4))
def test_messages_survive_one_after_the_other(messages: list[StoredMessage]) -> None:
    data = b"".join(encode_stored_message(message) for message in messages)
    assert decode_messages(data) == messages


@given(message=stored_messages(), data=st.data())
def test_changed_byte_is_a_message_or_an_error(message: StoredMessage, data: st.DataObject) -> None:
    record = bytearray(encode_stored_message(message))
    record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    check = check_record(bytes(record), 0, len(record), message.commit_log_offset)
    try:
        decoded = decode_message(bytes(record), check_crc=True)
    except MalformedMessageError:
        assert not check.is_ok
        return
    assert check.is_ok is (decoded.commit_log_offset == message.commit_log_offset)


@given(message=stored_messages(), keep=st.integers(0, 10_000))
def test_record_that_is_cut_off_is_an_error(message: StoredMessage, keep: int) -> None:
    record = encode_stored_message(message)
    record = record[: keep % len(record)]
    assert not check_record(record, 0, len(record)).is_ok
    try:
        decode_message(record)
    except MalformedMessageError:
        return
    raise AssertionError("a part of a record passed for one")


@given(data=st.binary(max_size=200), head=st.sampled_from([b"", b"\0\0\0\x70\xda\xa3\x20\xa7"]))
def test_random_bytes_are_an_error_or_messages(data: bytes, head: bytes) -> None:
    check_record(head + data, 0, len(head + data))
    try:
        decode_messages(head + data)
    except MalformedMessageError:
        return


@given(
    messages=st.lists(
        st.tuples(INT32, st.binary(max_size=50), st.binary(max_size=50)), min_size=1, max_size=10
    )
)
def test_batch_survives(messages: list[tuple[int, bytes, bytes]]) -> None:
    assert decode_batch(encode_batch(messages)) == messages


@given(
    messages=st.lists(st.tuples(INT32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5),
    keep=st.integers(0, 1000),
)
def test_batch_that_is_cut_off_is_whole_messages_or_malformed(
    messages: list[tuple[int, bytes, bytes]], keep: int
) -> None:
    body = encode_batch(messages)
    body = body[: keep % (len(body) + 1)]
    try:
        decoded = decode_batch(body)
    except MalformedBatchError:
        return
    assert decoded == messages[: len(decoded)]
    assert encode_batch(decoded) == body


@given(data=st.binary(max_size=100), filler=st.sampled_from([b"", bytes(20), bytes([0, 0, 0, 22])]))
def test_random_bytes_are_a_batch_or_a_malformed_one(data: bytes, filler: bytes) -> None:
    try:
        messages = decode_batch(filler + data)
    except MalformedBatchError:
        return
    assert sum(22 + len(body) + len(rest) for _, body, rest in messages) == len(filler + data)


@given(
    messages=st.lists(st.tuples(INT32, st.binary(max_size=50), PROPERTIES), min_size=1, max_size=5),
    base=st.integers(0, 2**40),
)
def test_inner_batch_gives_its_messages_back(
    messages: list[tuple[int, bytes, dict[str, str]]], base: int
) -> None:
    body = encode_batch(
        (flag, body, encode_properties(properties).encode()) for flag, body, properties in messages
    )
    record = encode_message(
        topic="T", body=body, sys_flag=0xC0, properties={"INNER_BASE": str(base)}
    )
    inner = decode_messages(record)
    assert [(each.flag, each.body, each.properties) for each in inner] == messages
    assert [each.queue_offset for each in inner] == list(range(base, base + len(messages)))


@given(properties=PROPERTIES)
def test_properties_survive(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text.encode().removesuffix(b"\x02")) == properties


@given(data=st.binary(max_size=100))
def test_any_bytes_are_properties(data: bytes) -> None:
    assert all(name and value for name, value in decode_properties(data).items())


@given(ip=IPS, port=INT32, offset=INT64)
def test_hosts_and_ids_survive(ip: str, port: int, offset: int) -> None:
    host = host_bytes(ip, port)
    assert host_text(host) == (ip, port)
    assert decode_offset_message_id(offset_message_id(host[:-4], port, offset)) == (
        ip,
        port,
        offset,
    )


@given(data=st.binary(max_size=500))
def test_compressed_body_survives(data: bytes) -> None:
    assert decompress(compress_zlib(data), 0x301, len(data)) == data


@given(data=st.binary(max_size=100), kind=st.sampled_from([0x1, 0x101, 0x201, 0x301]))
def test_random_bytes_decompress_or_are_an_error(data: bytes, kind: int) -> None:
    try:
        decompress(data, kind, 10_000)
    except CompressionError:
        return
