"""The note of a store's index geometry: read by the broker and by the pipeline."""

import json

import pytest

from rockhopper.protocol.store.queue_layout import (
    IndexGeometry,
    decode_geometry,
    encode_geometry,
)
from tests.support.rot import flipped

SHAPE = IndexGeometry(16, 40)


def test_a_note_says_what_was_noted() -> None:
    assert decode_geometry(encode_geometry(SHAPE)) == SHAPE
    assert json.loads(encode_geometry(SHAPE)).keys() == {
        "indexSlotCount",
        "indexEntryCountMax",
        "crc32",
    }


def test_a_note_of_early_builds_has_no_checksum() -> None:
    assert decode_geometry(b'{"indexSlotCount": 16, "indexEntryCountMax": 40}') == SHAPE


def test_no_flipped_bit_gives_another_geometry() -> None:
    note = encode_geometry(SHAPE)
    for bit in range(len(note) * 8):
        try:
            assert decode_geometry(flipped(note, bit)) == SHAPE
        except ValueError:
            continue


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[]", b"7", b'{"indexSlotCount": 16}', b'{"indexSlotCount": [], "x": 1}']
)
def test_what_is_no_note_is_refused(note: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_geometry(note)


def test_an_index_file_is_as_long_as_its_header_its_slots_and_its_entries() -> None:
    assert IndexGeometry(5_000_000, 20_000_000).file_size_bytes == 420_000_040
