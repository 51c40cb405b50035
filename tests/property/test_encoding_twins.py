"""The compiled functions do exactly what the Python ones do, for plain input and for any input."""

import mmap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.store.log import encoding
from rockhopper.protocol.store.message_codec import decode_message, encode_batch
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.walking import TIMED_KEY

compiled = pytest.importorskip(
    "rockhopper.broker.store.log._encoding", reason="installed without a compiler"
)

CONSTANTS = encoding.queue_constants("TopicA", 3)
V4_HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
V6_HOST = b"\0" * 15 + b"\1\0\0\x2a\x9f"
SUFFIX = b"CLUSTER\x01DefaultCluster\x02"

NAMES = st.sampled_from(
    [*sorted(encoding.SPECIAL_PROPERTIES), "UNIQ_KEY", "TAGS", "KEYS", "WAIT", "a", "b c", "ключ"]
)
PLAIN_NAMES = st.sampled_from(["TAGS", "KEYS", "WAIT", "a", "region", "ключ"])
VALUES = st.sampled_from(
    [
        "true",
        "false",
        "TagA",
        "k1 k2  k3",
        "0AF7",
        "TAGS",
        "DELAY",
        "标签",
        "\U0001f600",
        "",
        "x" * 300,
    ]
)


def joined(pairs: list[tuple[str, str]], end: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)[: None if end else -1]


ANY_PROPERTIES = st.one_of(
    st.builds(
        joined, st.lists(st.tuples(NAMES, VALUES), max_size=6), st.sampled_from(["", "\x02"])
    ),
    st.text(st.sampled_from("\x01\x02TAGSWIKEYDLUNQ_ true\ud800"), max_size=80),
)
PLAIN_PROPERTIES = st.builds(
    lambda before, after, end: joined([*before, ("UNIQ_KEY", "0A1B2C"), *after], end),
    st.lists(st.tuples(PLAIN_NAMES, VALUES), max_size=3),
    st.lists(st.tuples(PLAIN_NAMES, VALUES), max_size=3),
    st.sampled_from(["", "\x02"]),
)
NUMBERS = st.integers(-(2**33), 2**33)
HOSTS = st.sampled_from([V4_HOST, V6_HOST])


def plain_arguments(properties: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(
        st.just(CONSTANTS),
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.integers(0, 2**42),
        HOSTS,
        st.binary(max_size=300),
        properties,
        st.just(SUFFIX),
        NUMBERS,
        NUMBERS,
        st.integers(-(2**64), 2**64),
        HOSTS,
        NUMBERS,
    )


@given(arguments=plain_arguments(st.one_of(ANY_PROPERTIES, PLAIN_PROPERTIES)))
def test_any_message_is_encoded_alike(arguments: tuple[Any, ...]) -> None:
    assert compiled.encode_plain(*arguments) == encoding.encode_plain(*arguments)


@given(properties=PLAIN_PROPERTIES, body=st.binary(max_size=5000))
def test_a_plain_message_can_be_read_back(properties: str, body: bytes) -> None:
    arguments = (CONSTANTS, 4096, 7, 1000, V4_HOST, body, properties, SUFFIX, 1, 0, 2, V6_HOST, 5)
    encoded = compiled.encode_plain(*arguments)
    assert encoded is not None
    record, unit, packed_keys, unique_key, _ = encoded
    message = decode_message(record, check_crc=True)
    assert (message.topic, message.queue_id, message.queue_offset) == ("TopicA", 3, 7)
    assert (message.body, message.reconsume_times, message.flag) == (body, 5, 1)
    assert message.properties["CLUSTER"] == "DefaultCluster"
    assert unique_key == message.properties["UNIQ_KEY"] == "0A1B2C"
    assert CONSUME_QUEUE_UNIT.unpack(unit)[:2] == (4096, len(record))
    key_count = 1 + len(message.properties.get("KEYS", "").split())
    assert len(packed_keys) == key_count * encoding.INDEX_KEY.size


INNER = st.tuples(
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=100),
    st.one_of(ANY_PROPERTIES, PLAIN_PROPERTIES).map(lambda t: t.encode("utf-8", "replace")),
)


def batch_arguments(body: bytes) -> tuple[Any, ...]:
    return (CONSTANTS, 10, 20, 30, V4_HOST, body, 0x31, 40, V4_HOST)


@given(messages=st.lists(INNER, max_size=6))
def test_a_batch_is_encoded_alike(messages: list[tuple[int, bytes, bytes]]) -> None:
    arguments = batch_arguments(encode_batch(messages))
    assert compiled.encode_batch(*arguments) == encoding.encode_batch(*arguments)


def run_arguments(body: bytes) -> tuple[Any, ...]:
    return (CONSTANTS, 10, 20, 30, V6_HOST, body, SUFFIX, 40)


PLAIN_INNER = st.tuples(
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=100),
    PLAIN_PROPERTIES.map(lambda text: text.encode("utf-8", "replace")),
)


@given(messages=st.lists(st.one_of(PLAIN_INNER, INNER), max_size=4))
def test_a_run_is_encoded_alike(messages: list[tuple[int, bytes, bytes]]) -> None:
    arguments = run_arguments(encode_batch(messages))
    assert compiled.encode_run(*arguments) == encoding.encode_run(*arguments)
    for suffix in (SUFFIX, bytes(32_700)):
        counted = compiled.count_run(arguments[5], suffix)
        assert counted == encoding.count_run(arguments[5], suffix)


@given(
    good=st.lists(PLAIN_INNER, max_size=2),
    bad=st.binary(min_size=1, max_size=20).filter(lambda text: max(text) > 0x7F),
)
def test_properties_that_are_no_utf_8_are_left_to_the_general_way_alike(
    good: list[tuple[int, bytes, bytes]], bad: bytes
) -> None:
    arguments = run_arguments(encode_batch([*good, (0, b"body", b"UNIQ_KEY\x01x\x02a\x01" + bad)]))
    assert compiled.encode_run(*arguments) == encoding.encode_run(*arguments)
    assert compiled.count_run(arguments[5], SUFFIX) == encoding.count_run(arguments[5], SUFFIX)


def test_a_run_with_properties_that_are_no_utf_8_is_not_plain() -> None:
    arguments = run_arguments(encode_batch([(0, b"body", b"UNIQ_KEY\x01x\x02a\x01\xff")]))
    assert compiled.encode_run(*arguments) is None
    assert encoding.encode_run(*arguments) is None


@given(messages=st.lists(PLAIN_INNER, min_size=1, max_size=4))
def test_a_run_is_the_records_of_its_messages(messages: list[tuple[int, bytes, bytes]]) -> None:
    found = compiled.encode_run(*run_arguments(encode_batch(messages)))
    assert found is not None
    records, units, packed_keys = b"", b"", b""
    for number, (flag, body, properties) in enumerate(messages):
        head = CONSTANTS, 10 + len(records), 20 + number, 30, V6_HOST, body
        text = properties.decode()
        plain = compiled.encode_plain(*head, text, SUFFIX, flag, 0, 40, V6_HOST, 0)
        assert plain is not None
        records, units, packed_keys = records + plain[0], units + plain[1], packed_keys + plain[2]
    assert found == (records, units, packed_keys)


@given(messages=st.lists(INNER, min_size=1, max_size=4), data=st.data())
def test_a_broken_batch_is_refused_alike(
    messages: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    body = bytearray(encode_batch(messages))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    assert compiled.encode_batch(*batch_arguments(cut)) == encoding.encode_batch(
        *batch_arguments(cut)
    )
    assert compiled.encode_run(*run_arguments(cut)) == encoding.encode_run(*run_arguments(cut))


@given(offsets=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40), wide=st.booleans())
def test_message_ids_are_written_alike(offsets: list[int], wide: bool) -> None:
    host = V6_HOST if wide else V4_HOST
    units = b"".join([CONSUME_QUEUE_UNIT.pack(offset, 100, -1) for offset in offsets])
    ids = encoding.message_ids(host.hex().upper(), units)
    assert compiled.message_ids(host.hex().upper(), units) == ids
    assert ids == ",".join([f"{host.hex()}{offset:016x}".upper() for offset in offsets])


@given(
    entries=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**40)), max_size=40),
    number=st.integers(1, 10),
    rubbish=st.integers(0, 255),
)
def test_index_entries_are_written_alike(
    entries: list[tuple[int, int]], number: int, rubbish: int
) -> None:
    slots, entries_at = 7, 40 + 4 * 7
    size = entries_at + 20 * 64
    ours, theirs = mmap.mmap(-1, size), mmap.mmap(-1, size)
    for mapping in (ours, theirs):
        mapping[40:entries_at] = bytes([0, 0, 0, rubbish]) * slots
    packed = b"".join([encoding.INDEX_KEY.pack(*entry) for entry in entries])
    used = encoding.put_entries(ours, slots, entries_at, number, 9, packed)
    assert compiled.put_entries(theirs, slots, entries_at, number, 9, packed) == used
    assert ours[:] == theirs[:]


@given(
    entries=st.lists(
        st.tuples(
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**40),
            st.sampled_from([-(2**63), -1, 0, 4_999, 5_000, 5_999, 6_000, 2**31 * 1000, 2**63 - 1]),
        ),
        max_size=40,
    ),
    number=st.integers(1, 10),
    begin_ms=st.sampled_from([0, 5_000, 2**62]),
)
def test_index_entries_with_their_times_are_written_alike(
    entries: list[tuple[int, int, int]], number: int, begin_ms: int
) -> None:
    slots, entries_at = 7, 40 + 4 * 7
    size = entries_at + 20 * 64
    ours, theirs = mmap.mmap(-1, size), mmap.mmap(-1, size)
    packed = memoryview(b"".join([TIMED_KEY.pack(*entry) for entry in entries]))
    used = encoding.put_timed_entries(ours, slots, entries_at, number, begin_ms, packed)
    assert compiled.put_timed_entries(theirs, slots, entries_at, number, begin_ms, packed) == used
    assert ours[:] == theirs[:]


def test_entries_beyond_the_mapping_are_refused() -> None:
    with mmap.mmap(-1, 4096) as mapping, pytest.raises(ValueError, match="do not fit"):
        compiled.put_entries(mapping, 7, 68, 300, 0, encoding.INDEX_KEY.pack(1, 2))
