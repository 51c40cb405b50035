"""The compiled check of records says what the Python one says, of sound and of any bytes."""

from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.store.log import checking, encoding, selecting
from rockhopper.broker.store.log.fast_encoding import encode_plain
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import topic_field
from tests.support.records import encode_message

compiled = pytest.importorskip(
    "rockhopper.broker.store.log._encoding", reason="installed without a compiler"
)

V6_HOST = b"\0" * 15 + b"\1\0\0\x2a\x9f"


def written(bodies: list[bytes], topic: str, host: bytes, start: int) -> tuple[bytes, bytes]:
    """Records of *topic* back to back from a commit log offset on, and their units."""
    records, units = b"", b""
    for number, body in enumerate(bodies):
        position = start + len(records)
        record = encode_message(
            topic=topic,
            body=body,
            properties={"a": "b"},
            queue_id=3,
            queue_offset=7 + number,
            commit_log_offset=position,
            born_host=host,
        )
        records += record
        units += CONSUME_QUEUE_UNIT.pack(position, len(record), 0)
    return records, units


LOGS = st.builds(
    written,
    st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    st.sampled_from(["TopicA", "主题", "t" * 200]),
    st.sampled_from([bytes(8), V6_HOST]),
    st.sampled_from([0, 4096, 2**40]),
)
TOPICS = st.sampled_from(["TopicA", "主题", "t" * 200])


@given(log=LOGS, topic=TOPICS, flips=st.lists(st.integers(0, 2**14), max_size=2), data=st.data())
def test_any_bytes_are_judged_alike(
    log: tuple[bytes, bytes], topic: str, flips: list[int], data: st.DataObject
) -> None:
    parts = [bytearray(part) for part in log]
    for flip in flips:
        part = parts[data.draw(st.integers(0, 1))]
        part[(flip >> 3) % len(part)] ^= 1 << (flip & 7)
    records, units = map(bytes, parts)
    arguments = (
        topic_field(topic),
        3,
        data.draw(st.sampled_from([7, 8, -1])),
        units,
        data.draw(st.integers(0, 5)),
        records,
        data.draw(st.sampled_from([0, 2**62])),
    )
    assert compiled.count_sound(*arguments) == checking.count_sound(*arguments)


@given(
    log=LOGS,
    topic=TOPICS,
    flips=st.lists(st.integers(0, 2**14), max_size=1),
    chosen=st.lists(st.integers(0, 3), max_size=5),
    limits=st.tuples(st.integers(0, 5), st.sampled_from([0, 500, 1 << 20])),
    data=st.data(),
)
def test_any_bytes_are_gathered_alike(
    log: tuple[bytes, bytes],
    topic: str,
    flips: list[int],
    chosen: list[int],
    limits: tuple[int, int],
    data: st.DataObject,
) -> None:
    parts = [bytearray(part) for part in log]
    for flip in flips:
        part = parts[data.draw(st.integers(0, 1))]
        part[(flip >> 3) % len(part)] ^= 1 << (flip & 7)
    records, units = map(bytes, parts)
    base = CONSUME_QUEUE_UNIT.unpack_from(log[1])[0]
    if chosen:
        units = b"".join(units[20 * number : 20 * number + 20] for number in chosen)
    arguments = (
        topic_field(topic),
        3,
        data.draw(st.sampled_from([7, 8])),
        units,
        *limits,
        (records, base, base + len(records) - data.draw(st.sampled_from([0, 0, 1]))),
        data.draw(st.sampled_from([0, 2**62])),
    )
    assert compiled.gather_sound(*arguments) == checking.gather_sound(*arguments)


@given(log=LOGS, topic=TOPICS)
def test_what_was_written_is_sound_in_its_own_queue(log: tuple[bytes, bytes], topic: str) -> None:
    records, units = log
    count = len(units) // 20
    field = topic_field(topic)
    is_own = field in records
    found = compiled.count_sound(field, 3, 7, units, count, records, 2**62)
    assert found == (count if is_own else 0)
    assert compiled.count_sound(field, 3, 8, units, count, records, 2**62) == 0
    assert compiled.count_sound(field, 3, -1, units, count, records, 2**62) == count


@given(body=st.binary(max_size=2000))
def test_the_compiled_crc_is_the_crc(body: bytes) -> None:
    constants = encoding.queue_constants("t", 0)
    text = "UNIQ_KEY\x01AB\x02"
    encoded = encode_plain(constants, 0, 0, 1, bytes(8), body, text, b"", 0, 0, 0, bytes(8), 0)
    assert encoded is not None
    assert int.from_bytes(encoded[0][8:12], "big") == crc32(body) & 0x7FFFFFFF


@given(
    log=LOGS,
    topic=TOPICS,
    flips=st.lists(st.integers(0, 2**14), max_size=2),
    names=st.lists(st.sampled_from([b"a", b"b", b"AB"]), max_size=3, unique=True),
    limits=st.tuples(st.integers(0, 5), st.sampled_from([0, 500, 1 << 20])),
    data=st.data(),
)
def test_any_bytes_are_chosen_from_alike(
    log: tuple[bytes, bytes],
    topic: str,
    flips: list[int],
    names: list[bytes],
    limits: tuple[int, int],
    data: st.DataObject,
) -> None:
    parts = [bytearray(part) for part in log]
    for flip in flips:
        part = parts[data.draw(st.integers(0, 1))]
        part[(flip >> 3) % len(part)] ^= 1 << (flip & 7)
    records, units = map(bytes, parts)
    base = CONSUME_QUEUE_UNIT.unpack_from(log[1])[0]
    judge = data.draw(
        st.sampled_from([lambda _: True, lambda _: False, lambda key: crc32(key) & 1 > 0])
    )
    arguments: Any = (
        (topic_field(topic), 3, 7),
        units,
        *limits,
        (records, base, base + len(records)),
        data.draw(st.sampled_from([0, 2**62])),
        (tuple(names), {}, judge),
    )
    assert compiled.select_sound(*arguments) == selecting.select_sound(*arguments)
