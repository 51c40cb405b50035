"""Http2Connection: takes a client's bytes, returns events and bytes to send. No I/O, no clock.

Limits of one connection; exceeding one ends the connection or, if that suffices, the stream:

    concurrent streams                      STREAMS_MAX, more are refused
    a request's body, before it is read     WINDOW_BYTES, of all requests CONNECTION_WINDOW_BYTES
    a header block                          16 KiB, 128 fields, 8 CONTINUATION frames
    streams that are reset                  RESETS_MAX at once, then RESETS_PER_SECOND
    frames without an effect                IDLE_FRAMES_MAX at once, then IDLE_FRAMES_PER_SECOND
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, TypeAlias

from rockhopper.protocol.http2 import frames
from rockhopper.protocol.http2.errors import ErrorCode, Http2Error, StreamError
from rockhopper.protocol.http2.floods import Allowance
from rockhopper.protocol.http2.frames import FrameType, frame, read_head
from rockhopper.protocol.http2.hpack import LIST_SIZE_BYTES_MAX, HpackDecoder
from rockhopper.protocol.http2.ordinary_requests import ReadRequests, read_requests
from rockhopper.protocol.http2.semantics import check_fields, check_trailers, parse_declared_size
from rockhopper.protocol.http2.settings import (
    CONNECTION_WINDOW_BYTES,
    OURS,
    STREAMS_MAX,
    WINDOW_BYTES,
    WINDOW_BYTES_AT_FIRST,
    WINDOW_BYTES_MAX,
    PeerSettings,
)
from rockhopper.protocol.http2.streams import Stream

RESETS_MAX, RESETS_PER_SECOND = 200, 33
IDLE_FRAMES_MAX, IDLE_FRAMES_PER_SECOND = 1000, 100
IDLE_FRAMES_EARNED = 4
"""Added to the allowance for each request, and for each data frame in either direction."""
CONTINUATIONS_MAX = 8
RESETS_REMEMBERED_MAX = 256


class RequestStarted(NamedTuple):
    """The beginning of a request."""

    stream_id: int
    fields: dict[str, str]
    is_end: bool
    body: bytes = b""
    """The whole body, if the request *is_end*."""


class Received(NamedTuple):
    """A part of a request's body."""

    stream_id: int
    data: bytes
    is_end: bool


class StreamEnded(NamedTuple):
    """A stream that ended before its answer; *unsent* calls of ``data`` were not fully sent."""

    stream_id: int
    unsent: int


class DataSent(NamedTuple):
    """All data that waited for the peer's window has been sent."""

    stream_id: int


Event: TypeAlias = RequestStarted | Received | StreamEnded | DataSent


class _Block(NamedTuple):
    """A header block that is not yet complete."""

    stream_id: int
    flags: int
    parts: list[bytes]


class Http2Connection:
    """The server side of one connection."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """*clock* returns seconds, for the allowances."""
        self._clock = clock
        self._received = b""
        self._preface_left = frames.PREFACE
        self._decoder = HpackDecoder()
        self._peer = PeerSettings()
        self._block: _Block | None = None
        self._streams: dict[int, Stream] = {}
        # The peer may still have sent frames for streams that were reset here.
        self._reset_here: dict[int, None] = {}
        self._last_stream_id = 0
        self._send_window = WINDOW_BYTES_AT_FIRST
        self._receive_window = CONNECTION_WINDOW_BYTES
        self._resets = Allowance(
            "streams were reset", most=RESETS_MAX, per_second=RESETS_PER_SECOND
        )
        self._idle = Allowance(
            "frames that move nothing", most=IDLE_FRAMES_MAX, per_second=IDLE_FRAMES_PER_SECOND
        )
        self._events: list[Event] = []
        self._out: list[bytes] = [
            OURS,
            frames.window_update(0, CONNECTION_WINDOW_BYTES - WINDOW_BYTES_AT_FIRST),
        ]
        self._waiting: dict[int, Stream] = {}
        self.is_over = False
        """Whether reading has ended: close the connection after writing ``take``."""
        self.is_leaving = False
        self.paused = False
        """While true, no data under flow control is sent, because the socket is full."""
        self.failure: Http2Error | None = None

    @property
    def open_streams(self) -> int:
        """The number of requests that are not answered yet."""
        return len(self._streams)

    @property
    def is_in_frame(self) -> bool:
        """Whether a frame or a header block is incomplete."""
        return bool(self._received) or self._block is not None

    # Receiving

    def receive(self, data: bytes) -> list[Event]:
        """Return the events in *data*; after an error of the peer, ``is_over`` is set."""
        if self.is_over:
            return []
        try:
            self._receive(data)
        except Http2Error as error:
            self.failure = error
            self._out.append(frames.goaway(self._last_stream_id, error.code, str(error)))
            self._end_all()
        events, self._events = self._events, []
        return events

    def _receive(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        position = self._skip_preface(data) if self._preface_left else 0
        end = len(data)
        receive_frame = self._frame_received
        while end - position >= frames.HEAD_SIZE_BYTES:
            high, low, kind, flags, stream_id = read_head(data, position)
            size = high << 16 | low
            if size > frames.FRAME_SIZE_BYTES_MAX:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} octets")
            begin = position + frames.HEAD_SIZE_BYTES
            if end - begin < size:
                break
            if kind == FrameType.HEADERS:
                after = self._read_requests(data, position)
                if after > position:
                    position = after
                    continue
            position = begin + size
            receive_frame(kind, flags, stream_id & 0x7FFFFFFF, data[begin:position])
            if self.is_over:
                return
        self._received = data[position:]

    def _read_requests(self, data: bytes, position: int) -> int:
        """Read the ordinary requests in *data* from *position* on; return the position after them.

        They leave the connection's window more than half open, and begin no stream too many.
        """
        if (
            read_requests is None
            or not self._peer.have_arrived
            or self._block is not None
            or self.is_leaving
            or self._receive_window - len(data) < CONNECTION_WINDOW_BYTES // 2
        ):
            return position
        decoder = self._decoder
        read = ReadRequests(
            *read_requests(
                data,
                position,
                self._last_stream_id,
                STREAMS_MAX - len(self._streams),
                decoder.entries,
                decoder.size_bytes,
                decoder.size_bytes_max,
            )
        )
        self._last_stream_id = read.last_stream_id
        decoder.size_bytes = read.table_size_bytes
        self._receive_window -= read.body_size_bytes
        self._idle.earn(IDLE_FRAMES_EARNED * len(read.requests))
        streams, add, window_bytes = self._streams, self._events.append, self._peer.window_bytes
        for stream_id, fields, body in read.requests:
            stream = streams[stream_id] = Stream(stream_id, window_bytes, WINDOW_BYTES)
            if body is None:
                add(RequestStarted(stream_id, fields, False))
            else:
                stream.is_heard = True
                add(RequestStarted(stream_id, fields, True, body))
        return read.position

    def _skip_preface(self, data: bytes) -> int:
        size = min(len(data), len(self._preface_left))
        if data[:size] != self._preface_left[:size]:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
        self._preface_left = self._preface_left[size:]
        return size

    def _frame_received(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._peer.have_arrived and kind != FrameType.SETTINGS:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        block = self._block
        if block is not None and (kind != FrameType.CONTINUATION or stream_id != block.stream_id):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame inside a header block")
        handler = self._HANDLERS.get(kind)
        if handler is None:
            self._idle.spend(self._clock())
            return
        try:
            handler(self, flags, stream_id, payload)
        except StreamError as error:
            self.reset(stream_id, error.code)

    def _headers_received(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "HEADERS on stream 0")
        payload = _strip_padding(flags, payload)
        if flags & frames.FLAG_PRIORITY:
            if len(payload) < 5:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for a priority")
            depends_on = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
            if depends_on == stream_id:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
            payload = payload[5:]
        if flags & frames.FLAG_END_HEADERS:
            self._block_received(stream_id, flags, payload)
        else:
            self._block = _Block(stream_id, flags, [payload])

    def _continuation_received(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is None:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        block.parts.append(payload)
        size = sum(map(len, block.parts))
        if len(block.parts) > CONTINUATIONS_MAX + 1 or size > LIST_SIZE_BYTES_MAX:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"a header block of {size} octets")
        if flags & frames.FLAG_END_HEADERS:
            self._block = None
            self._block_received(stream_id, block.flags, b"".join(block.parts))

    def _block_received(self, stream_id: int, flags: int, block: bytes) -> None:
        # Decode the blocks of refused streams too: later blocks refer to their table entries.
        fields = self._decoder.decode(block)
        is_end = bool(flags & frames.FLAG_END_STREAM)
        stream = self._streams.get(stream_id)
        if stream is not None:
            if stream.is_heard:
                raise StreamError(ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
            if not is_end:
                raise StreamError(ErrorCode.PROTOCOL_ERROR, "HEADERS inside a body")
            check_trailers(fields)
            self._note_heard(stream, b"")
            return
        if stream_id <= self._last_stream_id:
            if stream_id in self._reset_here:
                return
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"HEADERS on the closed stream {stream_id}")
        if stream_id % 2 == 0:
            raise Http2Error(
                ErrorCode.PROTOCOL_ERROR, f"a client opened the even stream {stream_id}"
            )
        self._last_stream_id = stream_id
        if self.is_leaving or len(self._streams) >= STREAMS_MAX:
            raise StreamError(ErrorCode.REFUSED_STREAM, "too many streams at a time")
        found = check_fields(fields)
        stream = Stream(stream_id, self._peer.window_bytes, WINDOW_BYTES)
        stream.declared_bytes = parse_declared_size(found)
        if is_end:
            _check_size(stream)
        stream.is_heard = is_end
        self._streams[stream_id] = stream
        self._idle.earn(IDLE_FRAMES_EARNED)
        self._events.append(RequestStarted(stream_id, found, is_end))

    def _use_window(self, size: int) -> None:
        """Count received data against the connection's window, and open it again at its half."""
        self._receive_window -= size
        if self._receive_window >= CONNECTION_WINDOW_BYTES // 2:
            return
        if self._receive_window < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window allows")
        self._out.append(frames.window_update(0, CONNECTION_WINDOW_BYTES - self._receive_window))
        self._receive_window = CONNECTION_WINDOW_BYTES

    def _data_received(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        stream = self._streams.get(stream_id)
        if stream_id == 0 or stream_id > self._last_stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"DATA on the idle stream {stream_id}")
        self._use_window(size)
        if stream is None or stream.is_heard:
            if stream_id in self._reset_here:
                return
            raise StreamError(ErrorCode.STREAM_CLOSED, "DATA after the end of the stream")
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamError(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window allows")
        data = _strip_padding(flags, payload)
        stream.received_bytes += len(data)
        if flags & frames.FLAG_END_STREAM:
            self._note_heard(stream, data)
            return
        if data:
            self._idle.earn(IDLE_FRAMES_EARNED)
        else:
            self._idle.spend(self._clock())
        self._open_window(stream_id, stream)
        self._events.append(Received(stream_id, data, is_end=False))

    def _open_window(self, stream_id: int, stream: Stream) -> None:
        """Let the peer send more, if half of the stream's window is used."""
        if stream.receive_window < WINDOW_BYTES // 2 and not stream.is_answered:
            self._out.append(frames.window_update(stream_id, WINDOW_BYTES - stream.receive_window))
            stream.receive_window = WINDOW_BYTES

    def _note_heard(self, stream: Stream, data: bytes) -> None:
        _check_size(stream)
        stream.is_heard = True
        self._events.append(Received(stream.id, data, is_end=True))

    def _priority_received(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        self._idle.spend(self._clock())
        if len(payload) != 5:
            raise StreamError(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY must have five octets")
        if int.from_bytes(payload[:4], "big") & 0x7FFFFFFF == stream_id:
            raise StreamError(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")

    def _reset_received(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM must have four octets")
        if stream_id == 0 or stream_id > self._last_stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "RST_STREAM of an idle stream")
        self._resets.spend(self._clock())
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream)

    def _settings_received(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & frames.FLAG_ACK:
            if payload or not self._peer.have_arrived:
                raise Http2Error(
                    ErrorCode.FRAME_SIZE_ERROR, "a SETTINGS acknowledgement must be empty"
                )
            return
        if self._peer.have_arrived:
            self._idle.spend(self._clock())
        before = self._peer.window_bytes
        self._peer.apply(payload)
        self._out.append(frame(FrameType.SETTINGS, frames.FLAG_ACK, 0))
        more = self._peer.window_bytes - before
        if more:
            for stream in self._streams.values():
                stream.send_window += more
                if stream.send_window > WINDOW_BYTES_MAX:
                    raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window of 2**31")
            self._send_waiting()

    def _push_received(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _ping_received(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PING must have eight octets")
        if not flags & frames.FLAG_ACK:
            self._idle.spend(self._clock())
            self._out.append(frame(FrameType.PING, frames.FLAG_ACK, 0, payload))

    def _goaway_received(self, _flags: int, stream_id: int, _payload: bytes) -> None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")

    def _window_received(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE must have four octets")
        increment = int.from_bytes(payload, "big") & 0x7FFFFFFF
        if stream_id > self._last_stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of an idle stream")
        stream = self._streams.get(stream_id)
        if stream_id and stream is None:
            return
        if not increment:
            error = StreamError if stream_id else Http2Error
            raise error(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by zero")
        if stream is None:
            self._send_window += increment
            if self._send_window > WINDOW_BYTES_MAX:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window of 2**31")
        else:
            stream.send_window += increment
            if stream.send_window > WINDOW_BYTES_MAX:
                raise StreamError(ErrorCode.FLOW_CONTROL_ERROR, "a window of 2**31")
        self._send_waiting()

    _HANDLERS: ClassVar[Mapping[int, Callable[["Http2Connection", int, int, bytes], None]]] = {
        FrameType.DATA: _data_received,
        FrameType.HEADERS: _headers_received,
        FrameType.PRIORITY: _priority_received,
        FrameType.RST_STREAM: _reset_received,
        FrameType.SETTINGS: _settings_received,
        FrameType.PUSH_PROMISE: _push_received,
        FrameType.PING: _ping_received,
        FrameType.GOAWAY: _goaway_received,
        FrameType.WINDOW_UPDATE: _window_received,
        FrameType.CONTINUATION: _continuation_received,
    }

    def is_open(self, stream_id: int) -> bool:
        """Whether an answer is not completely sent."""
        return stream_id in self._streams

    # Sending

    def drain(self) -> bytes:
        """Return the bytes to write now."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def answer(self, stream_id: int, block: bytes, data: bytes, trailers: bytes) -> None:
        """Send a whole answer: like ``headers``, ``data`` and ``end_stream``, but faster."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        size = len(data)
        room = min(stream.send_window, self._send_window, frames.FRAME_SIZE_BYTES_MAX)
        if size > room or self.paused or not stream.is_heard or not trailers:
            self.headers(stream_id, block)
            self.data(stream_id, data)
            self.end_stream(stream_id, trailers)
            return
        self._send_window -= size
        del self._streams[stream_id]
        self._out.append(frames.answer(stream_id, block, data, trailers))

    def headers(self, stream_id: int, block: bytes) -> None:
        """Begin an answer with a header block that fits into a frame."""
        if stream_id in self._streams:
            self._out.append(frame(FrameType.HEADERS, frames.FLAG_END_HEADERS, stream_id, block))

    def data(self, stream_id: int, data: bytes) -> bool:
        """Send *data* as far as the windows allow, the rest later; return False if some waits."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return True
        size = len(data)
        if (
            not stream.unsent
            and not self.paused
            and size <= frames.FRAME_SIZE_BYTES_MAX
            and size <= stream.send_window
            and size <= self._send_window
        ):
            stream.send_window -= size
            self._send_window -= size
            self._idle.earn(IDLE_FRAMES_EARNED)
            self._out.append(frame(FrameType.DATA, 0, stream_id, data))
            return True
        stream.unsent.append(memoryview(data))
        self._waiting[stream_id] = stream
        return not self._send_some(stream)

    def end_stream(self, stream_id: int, trailers: bytes) -> None:
        """End an answer with a block of trailers, which may be empty, after the waiting data."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.trailers = trailers
        if not stream.unsent:
            self._finish(stream)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Reset a stream because of an error on either side. Raises Http2Error after too many."""
        self._out.append(frames.reset(stream_id, code))
        self._note_reset(stream_id)
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream)
        self._resets.spend(self._clock())

    def leave(self) -> None:
        """Accept no more requests; open ones continue."""
        if not self.is_leaving and not self.is_over:
            self.is_leaving = True
            self._out.append(frames.goaway(WINDOW_BYTES_MAX, ErrorCode.NO_ERROR))

    def resume(self) -> list[Event]:
        """Continue sending after a pause."""
        self.paused = False
        self._send_waiting()
        events, self._events = self._events, []
        return events

    def end_all(self) -> list[Event]:
        """Handle a lost connection: return events for the streams that were open."""
        self._end_all()
        events, self._events = self._events, []
        return events

    def _end_all(self) -> None:
        self.is_over = True
        for stream in list(self._streams.values()):
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.id]
        self._waiting.pop(stream.id, None)
        self._events.append(StreamEnded(stream.id, len(stream.unsent)))

    def _note_reset(self, stream_id: int) -> None:
        self._reset_here[stream_id] = None
        if len(self._reset_here) > RESETS_REMEMBERED_MAX:
            del self._reset_here[next(iter(self._reset_here))]

    def _finish(self, stream: Stream) -> None:
        assert stream.trailers is not None
        if stream.trailers:
            self._out.append(frame(FrameType.HEADERS, frames.FLAGS_END, stream.id, stream.trailers))
        else:
            self._out.append(frame(FrameType.DATA, frames.FLAG_END_STREAM, stream.id))
        if not stream.is_heard:
            # The peer need not send the rest.
            self._out.append(frames.reset(stream.id, ErrorCode.NO_ERROR))
            self._note_reset(stream.id)
        del self._streams[stream.id]
        self._waiting.pop(stream.id, None)

    def _send_waiting(self) -> None:
        """Send waiting data, one frame of each stream in turn."""
        is_moving = True
        while is_moving and self._waiting:
            is_moving = False
            for stream in list(self._waiting.values()):
                before = stream.send_window
                if not self._send_some(stream, frames_max=1):
                    self._events.append(DataSent(stream.id))
                    is_moving = True
                elif stream.send_window != before:
                    is_moving = True

    def _send_some(self, stream: Stream, frames_max: int = 1 << 30) -> bool:
        """Send what the windows allow; return whether data still waits."""
        while stream.unsent and not self.paused and frames_max:
            frames_max -= 1
            data = stream.unsent[0]
            room = min(stream.send_window, self._send_window, frames.FRAME_SIZE_BYTES_MAX)
            if room <= 0 < len(data):
                return True
            part = data[:room]
            self._idle.earn(IDLE_FRAMES_EARNED)
            stream.send_window -= len(part)
            self._send_window -= len(part)
            self._out.append(frame(FrameType.DATA, 0, stream.id, part))
            if len(part) == len(data):
                stream.unsent.popleft()
            else:
                stream.unsent[0] = data[room:]
        if stream.unsent:
            return True
        self._waiting.pop(stream.id, None)
        if stream.trailers is not None:
            self._finish(stream)
        return False


def _check_size(stream: Stream) -> None:
    if stream.declared_bytes is not None and stream.declared_bytes != stream.received_bytes:
        raise StreamError(
            ErrorCode.PROTOCOL_ERROR,
            f"content-length is {stream.declared_bytes}, but the body has {stream.received_bytes}",
        )


def _strip_padding(flags: int, payload: bytes) -> bytes:
    if not flags & frames.FLAG_PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]
