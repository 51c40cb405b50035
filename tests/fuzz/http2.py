"""Fuzz our HTTP/2, and the messages on its streams, by what its code runs through.

``make fuzz-grpc``. An input is a list of operations of a client; what it means is in
``operations``. Whatever they are,

    no exception comes out of the connection, and one that is over says why,
    the same bytes in other pieces have the same events and the same answer,
    a peer is never sent more than its windows allow, nor is more kept than the limits,
    what is sent are whole frames.

What is found interesting is kept in ``build/fuzz/http2``, so that a run goes on where the last one
ended; an input that fails is written beside it, and given as an argument it is run again.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import atheris
import click

with atheris.instrument_imports(include=["rockhopper.protocol"]):
    from rockhopper.protocol.grpc_v2.framing import FramingError, MessageSplitter
    from rockhopper.protocol.http2 import frames
    from rockhopper.protocol.http2.connection import (
        Event,
        Http2Connection,
        Received,
        RequestStarted,
        StreamEnded,
    )
    from rockhopper.protocol.http2.frames import HEAD_SIZE_BYTES, PREFACE, FrameType, frame
    from rockhopper.protocol.http2.hpack import encode_fields
    from rockhopper.protocol.http2.settings import STREAMS_MAX, WINDOW_BYTES_AT_FIRST

from tests.support.http2_events import by_stream

CORPUS = Path(__file__).parents[2] / "build" / "fuzz" / "http2"
MESSAGE_BYTES_MAX = 1 << 16
ANSWER = encode_fields([(":status", "200")])
TRAILERS = encode_fields([("grpc-status", "0")])
REQUEST = encode_fields(
    [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "x")]
)


def operations(data: bytes) -> Iterator[bytes]:
    """The bytes of a client, a frame or part of one each.

    kind 1   0 to 10: of this type; 11: a request; 12: the payload as it is, in no frame
    flags 1   stream 1   size 1   payload
    """
    position = 0
    while position + 4 <= len(data):
        kind, flags, stream_id, size = data[position : position + 4]
        payload = data[position + 4 : position + 4 + size]
        position += 4 + size
        if kind % 13 == 12:
            yield payload
        elif kind % 13 == 11:
            yield frame(FrameType.HEADERS, frames.FLAG_END_HEADERS | flags & 1, stream_id, REQUEST)
        else:
            yield frame(kind % 13, flags, stream_id, payload)


class Peer:
    """A connection, and a server that answers at once, or never."""

    def __init__(self, granted_bytes: int, *, answers: bool) -> None:
        self._granted_bytes = granted_bytes
        self._answers = answers
        self.http2 = Http2Connection(lambda: 0.0)
        self.events: list[Event] = []
        self.sent = b""
        self._readers: dict[int, MessageSplitter] = {}

    def receive(self, data: bytes) -> None:
        """Take *data*, and answer every other request in pieces."""
        for event in self.http2.receive(data):
            self.events.append(event)
            if self._answers:
                self._serve(event)
        self.sent += self.http2.drain()

    def _serve(self, event: Event) -> None:
        if isinstance(event, RequestStarted):
            self._readers[event.stream_id] = MessageSplitter("gzip", MESSAGE_BYTES_MAX)
            if event.is_end:
                self._read(Received(event.stream_id, event.body, is_end=True))
        elif isinstance(event, StreamEnded):
            self._readers.pop(event.stream_id, None)
            return
        elif isinstance(event, Received):
            self._read(event)
        else:
            return
        if event.is_end and event.stream_id % 4 == 1:
            self.http2.answer(event.stream_id, ANSWER, b"a" * 100, TRAILERS)
        elif event.is_end:
            self.http2.headers(event.stream_id, ANSWER)
            self.http2.data(event.stream_id, b"a" * 40_000)
            self.http2.end_stream(event.stream_id, TRAILERS)

    def _read(self, event: Received) -> None:
        reader = self._readers.get(event.stream_id)
        if reader is None:
            return
        try:
            reader.feed(event.data)
        except FramingError:
            del self._readers[event.stream_id]
            self.http2.end_stream(event.stream_id, TRAILERS)

    def check(self) -> None:
        """What holds of any connection."""
        assert self.http2.is_over or self.http2.failure is None
        assert self.http2.open_streams <= STREAMS_MAX
        position, size_bytes = 0, 0
        while position < len(self.sent):
            high, low, kind, _, _ = frames.read_head(self.sent, position)
            size = high << 16 | low
            position += HEAD_SIZE_BYTES + size
            size_bytes += size if kind == FrameType.DATA else 0
        assert position == len(self.sent)
        assert size_bytes <= WINDOW_BYTES_AT_FIRST + self._granted_bytes


def fuzz(data: bytes) -> None:
    """Live through one conversation, whole and in pieces."""
    if not data:
        return
    pieces = list(operations(data[1:]))
    stream = PREFACE + frame(FrameType.SETTINGS, 0, 0) + b"".join(pieces)
    room = granted(stream)
    whole, parted, serving = (Peer(room, answers=answers) for answers in (False, False, True))
    whole.receive(stream)
    step = data[0] % 32 + 1
    for begin in range(0, len(stream), step):
        parted.receive(stream[begin : begin + step])
    for piece in (PREFACE, frame(FrameType.SETTINGS, 0, 0), *pieces):
        serving.receive(piece)
    for peer in (whole, parted, serving):
        peer.check()
    assert by_stream(whole.events) == by_stream(parted.events)
    assert whole.sent == parted.sent
    assert str(whole.http2.failure) == str(parted.http2.failure)


def granted(stream: bytes) -> int:
    """The most that WINDOW_UPDATE frames of the connection can have allowed: any four octets."""
    mark = b"\0\0\4\x08"
    position, total = stream.find(mark), 0
    while position >= 0:
        total += int.from_bytes(stream[position + 9 : position + 13], "big") & 0x7FFFFFFF
        position = stream.find(mark, position + 1)
    return total


@click.command()
@click.option("--seconds", default=3600, show_default=True, help="How long.")
@click.argument("inputs", nargs=-1, type=click.Path(exists=True))
def main(seconds: int, inputs: tuple[str, ...]) -> None:
    """Fuzz the connection of HTTP/2."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    arguments = list(inputs) or [str(CORPUS), f"-max_total_time={seconds}"]
    common = ["-max_len=4096", "-timeout=60", f"-artifact_prefix={CORPUS.parent}/"]
    atheris.Setup([sys.argv[0], *arguments, *common, "-print_final_stats=1"], fuzz)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
