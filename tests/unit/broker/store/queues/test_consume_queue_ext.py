"""ConsumeQueueExt: addresses resolve to units, and nonsense to None.

The bytes follow docs of RocketMQ's ConsumeQueueExt: no golden store has any.
"""

from pathlib import Path

import pytest

from rockhopper.broker.store.queues.consume_queue_ext import (
    ConsumeQueueExt,
    ExtensionUnit,
    is_address,
)

# Two units, with bitmaps of one and two bytes, then the mark of the end of the file.
FILE = bytes.fromhex(
    "0015 0000000000002a7b 0000018bcfe5687b 0001 80"
    "0016 ffffffffffffffff 0000018bcfe5687c 0002 8001"
    "ffff"
)
ADDRESS_0 = -(2**63)


@pytest.fixture
def ext(tmp_path: Path) -> ConsumeQueueExt:
    """Give an extension of two files with the same units."""
    for offset in (64, 128):
        (tmp_path / f"{offset:020d}").write_bytes(FILE.ljust(64, b"\0"))
    return ConsumeQueueExt(tmp_path)


def test_address_leads_to_its_unit(ext: ConsumeQueueExt) -> None:
    assert ext.get(ADDRESS_0 + 64) == ExtensionUnit(0x2A7B, 0x18BCFE5687B, b"\x80")
    assert ext.get(ADDRESS_0 + 64 + 21) == ExtensionUnit(-1, 0x18BCFE5687C, b"\x80\x01")
    assert ext.get(ADDRESS_0 + 128) == ext.get(ADDRESS_0 + 64)


@pytest.mark.parametrize("offset", [0, 63, 65, 64 + 43, 64 + 50, 127, 192, 2**62])
def test_address_without_a_unit_leads_nowhere(offset: int, ext: ConsumeQueueExt) -> None:
    assert ext.get(ADDRESS_0 + offset) is None


def test_queue_without_an_extension_resolves_nothing(tmp_path: Path) -> None:
    assert ConsumeQueueExt(tmp_path / "none").get(ADDRESS_0) is None


@pytest.mark.parametrize(
    ("tags_code", "expected"),
    [(-(2**63), True), (-(2**31) - 1, True), (-(2**31), False), (0, False), (2598919, False)],
)
def test_hashes_are_no_addresses(tags_code: int, expected: bool) -> None:
    assert is_address(tags_code) is expected
