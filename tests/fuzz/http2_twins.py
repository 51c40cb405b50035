"""Compares a connection that reads ordinary requests by compiled code with one that does not."""

from typing import Any
from unittest import mock

from rockhopper.protocol.http2 import _frames as compiled
from rockhopper.protocol.http2 import connection, frames
from rockhopper.protocol.http2.connection import Http2Connection
from rockhopper.protocol.http2.frames import PREFACE, FrameType, frame
from rockhopper.protocol.http2.hpack import STATIC_TABLE
from rockhopper.protocol.http2.huffman import CODE_LENGTHS
from rockhopper.protocol.http2.semantics import sound_names
from tests.support.http2_events import by_stream

compiled.set_tables(STATIC_TABLE, sound_names, CODE_LENGTHS)
read_requests = compiled.read_requests
BEGINNING = PREFACE + frame(FrameType.SETTINGS, 0, 0)


def read(stream: bytes, step: int, read_requests: Any) -> dict[str, Any]:
    """Return all that a connection makes of a client's *stream*, in pieces of *step* bytes."""
    made, events = Http2Connection(lambda: 0.0), []
    with mock.patch.object(connection, "read_requests", read_requests):
        for begin in range(0, len(stream), step):
            events += made.receive(stream[begin : begin + step])
    state = vars(made).copy()
    decoder = state.pop("_decoder")
    return {
        "events": by_stream(events),
        "sent": made.drain(),
        "failure": str(made.failure),
        "table": (decoder.entries, decoder.size_bytes, decoder.size_bytes_max),
        "streams": sorted(state["_streams"]),
        "numbers": {name: value for name, value in state.items() if type(value) is int},
    }


def check(frames_of_client: bytes, step: int = 1 << 20) -> dict[str, Any]:
    """Compare both ways to read what a client sends after its settings."""
    stream = BEGINNING + frames_of_client
    found = read(stream, step, read_requests)
    assert found == read(stream, step, None)
    return found


def check_answer(stream_id: int, block: bytes, data: bytes, trailers: bytes) -> None:
    """Compare the frames of an answer."""
    parts = stream_id, block, data, trailers
    assert compiled.encode_answer(*parts) == frames.answer_in_python(*parts)
