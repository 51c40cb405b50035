"""Layouts of queue and index files: the reference's bytes."""

import pytest

from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.store import queue_layout
from rockhopper.protocol.store.queue_layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    BLANK_CONSUME_QUEUE_UNIT,
    CHECKPOINT,
    CONSUME_QUEUE_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
)


@pytest.mark.parametrize(
    ("data", "unit"),
    [
        ("0000000000000000 000000f0 000000000027a807", (0, 240, java_string_hash("TagA"))),
        ("00000000000001e1 000000f2 000000000027a807", (481, 242, java_string_hash("TagA"))),
        ("00000000000002c0 000000ad 000001a1f84612ab", (704, 173, 0x1A1F84612AB)),
    ],
)
def test_consume_queue_units(data: str, unit: tuple[int, int, int]) -> None:
    assert CONSUME_QUEUE_UNIT.unpack(bytes.fromhex(data)) == unit
    assert CONSUME_QUEUE_UNIT.pack(*unit) == bytes.fromhex(data)


def test_blank_unit() -> None:
    assert bytes.fromhex("0000000000000000 7fffffff 0000000000000000") == BLANK_CONSUME_QUEUE_UNIT


@pytest.mark.parametrize(
    ("data", "unit"),
    [
        (
            "0000000000000568 00000125 0000000000000000 000001a1f845ebad"
            "0000000000000000 0003 ffffffff 00000000",
            (0x568, 0x125, 0, 0x1A1F845EBAD, 0, 3, -1, 0),
        ),
        (
            "000000000000068d 000000f1 0000000000000000 000001a1f845ebb2"
            "0000000000000003 0002 ffffffff 00000000",
            (0x68D, 0xF1, 0, 0x1A1F845EBB2, 3, 2, -1, 0),
        ),
        (
            "000000000000077e 00000081 0000000000000000 000001a1f845ebb3"
            "0000000000000005 0001 ffffffff 00000000",
            (0x77E, 0x81, 0, 0x1A1F845EBB3, 5, 1, -1, 0),
        ),
    ],
)
def test_batch_consume_queue_units(data: str, unit: tuple[int, ...]) -> None:
    assert BATCH_CONSUME_QUEUE_UNIT.unpack(bytes.fromhex(data)) == unit
    assert BATCH_CONSUME_QUEUE_UNIT.pack(*unit) == bytes.fromhex(data)


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (
            "000001a1f8404320 000001a1f84043ad 0000000000000000 0000000000000b84 0000000e 00000028",
            (0x1A1F8404320, 0x1A1F84043AD, 0, 0xB84, 14, 40),
        ),
        (
            "000001a1f84043ad 000001a1f84043b1 0000000000000c81 000000000000192d 0000000f 00000028",
            (0x1A1F84043AD, 0x1A1F84043B1, 0xC81, 0x192D, 15, 40),
        ),
    ],
)
def test_index_headers(data: str, header: tuple[int, ...]) -> None:
    assert INDEX_HEADER.unpack(bytes.fromhex(data)) == header


def test_checkpoint() -> None:
    data = bytes.fromhex(
        "000001a1f84043ad 000001a1f84043b3 000001a1f84043b1 0000000000000000 0000000000000000"
    )
    assert CHECKPOINT.unpack(data) == (0x1A1F84043AD, 0x1A1F84043B3, 0x1A1F84043B1, 0, 0)


def test_sizes_are_those_of_the_structs() -> None:
    assert CONSUME_QUEUE_UNIT.size == queue_layout.CONSUME_QUEUE_UNIT_SIZE_BYTES == 20
    assert BATCH_CONSUME_QUEUE_UNIT.size == queue_layout.BATCH_CONSUME_QUEUE_UNIT_SIZE_BYTES == 46
    assert INDEX_HEADER.size == queue_layout.INDEX_HEADER_SIZE_BYTES == 40
    assert INDEX_SLOT.size == queue_layout.INDEX_SLOT_SIZE_BYTES == 4
    assert INDEX_ENTRY.size == queue_layout.INDEX_ENTRY_SIZE_BYTES == 20
