"""The requests of ordinary clients, read by compiled code.

An ordinary request is a HEADERS frame with the whole block, and a DATA frame that ends the stream.
``_frames.c`` reads those at the front of a connection's bytes, frames of several requests mixed. It
ends before the first frame that is anything else, valid or not: ``Http2Connection`` reads that one.

Example: of HEADERS 1, HEADERS 3, DATA 1, PING, DATA 3 it reads the first three. Request 1 is
complete, request 3 has begun.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.http2.hpack import STATIC_TABLE
from rockhopper.protocol.http2.huffman import CODE_LENGTHS
from rockhopper.protocol.http2.semantics import sound_names


class ReadRequests(NamedTuple):
    """What compiled code has read."""

    requests: list[tuple[int, dict[str, str], bytes | None]]
    """Stream, header fields and body of each; those that are complete first, in the order of their
    ends. The body of the others is None."""
    position: int
    """The position of the first byte that was not read."""
    last_stream_id: int
    table_size_bytes: int
    """The size of the header table, whose entries are changed in place."""
    body_size_bytes: int
    """The size of all bodies."""


_frames = import_compiled("rockhopper.protocol.http2._frames")
if _frames is not None:
    _frames.set_tables(STATIC_TABLE, sound_names, CODE_LENGTHS)
read_requests: Callable[..., tuple[Any, ...]] | None = getattr(_frames, "read_requests", None)
"""Read requests; returns the fields of ReadRequests.

Arguments: the bytes, the position to begin at, the last stream so far, how many streams may begin,
and entries, size and size limit of the header table.
"""
