"""The bodies of the records of rmq_sys_rockhopper_state."""

import pytest

from rockhopper.broker.kernel import state_records as records
from rockhopper.broker.kernel.state_records import StateKind, StateRecordError


def test_a_body_holds_its_writer_its_snapshot_and_entries() -> None:
    body = records.encode_state(1, -1, [(StateKind.OFFSETS, b"ab"), (9, b"")])
    assert body == bytes.fromhex(
        "01 0000000000000001 ffffffffffffffff 04 00000002 6162 09 00000000"
    )
    assert records.decode_state(body) == (1, -1, [(4, b"ab"), (9, b"")])


@pytest.mark.parametrize("cut", [1, 5, 7, 20])
def test_a_body_that_was_cut_is_refused(cut: int) -> None:
    body = records.encode_state(1, 0, [(StateKind.OFFSETS, b"abc")])
    with pytest.raises(StateRecordError):
        records.decode_state(body[:-cut])


def test_a_younger_version_is_named() -> None:
    body = bytearray(records.encode_state(1, 0, []))
    body[0] = 2
    with pytest.raises(StateRecordError, match="upgrade this replica"):
        records.decode_state(bytes(body))


def test_payloads_come_back() -> None:
    entry = records.encode_table_entry("topics.json", "städte", {"perm": 6})
    assert records.decode_table_entry(entry) == ("topics.json", "städte", {"perm": 6})
    gone = records.encode_table_entry("topics.json", "a", None)
    assert records.decode_table_entry(gone) == ("topics.json", "a", None)
    assert records.decode_document(records.encode_document("t", b"{}")) == ("t", b"{}")
    assert records.decode_piece(records.encode_piece(2, 3, b"x")) == (2, 3, b"x")
    assert records.decode_slots(records.encode_slots([(1, 2), (1, 3), (4, 5)])) == {
        1: [2, 3],
        4: [5],
    }
    assert records.decode_numbers(records.encode_numbers(1, -2), 2) == (1, -2)
