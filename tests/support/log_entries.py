"""The expected queue units and index entries of written logs."""

from typing import Any

from rockhopper.pipeline.derived.dispatch_rules import DispatchRules
from rockhopper.pipeline.derived.entries import Entries
from rockhopper.pipeline.store_source.directory import open_store
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.scan import DamagedRange, scan
from tests.support.written_logs import WrittenLog


def entries_of(log: WrittenLog, *, with_keys: bool = True, **rules: Any) -> Entries:
    """Return the expected entries of *log*; *rules* are those of DispatchRules."""
    entries = Entries(DispatchRules(**{"delays_ms": (1000, 5000), **rules}), with_keys=with_keys)
    for segment in open_store(str(log.root)).segments:
        start, end = segment.base_offset, segment.end_offset
        piece = FilePiece(segment.path, start, start, end, end, is_followed=False, is_live=False)
        for records in scan(piece):
            assert not isinstance(records, DamagedRange)
            entries.append_records(records)
    return entries
