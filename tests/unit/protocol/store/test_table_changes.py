"""Changes of a table count for the file that they are of, and for no other."""

from rockhopper.protocol.store.journal_records import decode_records
from rockhopper.protocol.store.table_changes import (
    TableChange,
    changes_of,
    encode_change,
    encode_file,
    fingerprint,
)

ONE, TWO = TableChange("one", {"perm": 6}, {"counter": 1}), TableChange("two\ud800", None, None)
FILE, OTHER = fingerprint(b"file"), fingerprint(b"other")


def test_changes_come_back_as_they_were_noted() -> None:
    data = encode_file(FILE) + encode_change(ONE) + encode_change(TWO)
    assert changes_of(decode_records(data).records, [OTHER, FILE]) == [ONE, TWO]


def test_changes_of_another_file_do_not_count() -> None:
    data = encode_file(OTHER) + encode_change(ONE) + encode_file(FILE) + encode_change(TWO)
    records = decode_records(data).records
    assert changes_of(records, [FILE]) == [TWO]
    assert changes_of(records, ["-"]) == []
    assert changes_of(records[1:2], [FILE]) == []
