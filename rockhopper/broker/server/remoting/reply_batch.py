"""ReplyBatch: the responses, staged sends and pending responses of one pass over frames.

Responses to sends are pending until the pass is written, and under SYNC_FLUSH until it is on disk;
all other responses are sent when the pass ends. Everything is sent in one write.
"""

from collections.abc import Callable
from functools import partial

from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.latencies import RequestTimes
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import (
    Response,
    choose_unconfirmed_code,
    store_error_response,
)
from rockhopper.broker.server.remoting.held_answers import encode_unconfirmed_frames, hold_back
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.codes import FLAG_RESPONSE, ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, FrameDecoder

# Pending responses to staged sends, the log offset of the first one's message, and whether they
# wait for the disk. Messages that are answered together are written together.
_Owed = tuple[bytes, int, bool]


class ReplyBatch:
    """The responses, staged sends and pending responses of one pass."""

    __slots__ = (
        "_began",
        "_gate",
        "_guarded",
        "_has_waited",
        "_owed",
        "_sends",
        "_served",
        "_stats",
        "_store",
        "_then",
        "_times",
        "answers",
        "began_s",
        "connection",
        "size_bytes",
        "staged",
    )

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStats,
        connection: RemotingConnection,
        times: RequestTimes,
        began_s: float,
        *,
        has_waited: bool = False,
        gate: LeaseGate | None = None,
    ) -> None:
        """*stats* counts staged sends that could not be written.

        *began_s* is when its frames were read, by the clock of *times*; if it *has_waited*, when
        messages arrived for them. Responses that promise state are sent through *gate*.
        """
        self._store = store
        self._gate = gate
        self._guarded: list[int] = []
        self._stats = stats
        self._began = False
        self._times = times
        self._has_waited = has_waited
        self.began_s = began_s
        # Requests by code: staged and unanswered; served, to be counted when the pass ends.
        self._sends: dict[int, int] = {}
        self._served: dict[int, int] = {}
        # In the order of the log.
        self._owed: list[_Owed] = []
        self._then: list[Callable[[int], None]] = []
        self.connection = connection
        self.answers: list[bytes] = []
        self.size_bytes = 0
        self.staged = 0

    def can_stage(self) -> bool:
        """Return whether the store accepts messages now; reads the clock once a pass."""
        if not self._began:
            store = self._store
            if not store.is_writable:
                return False
            try:
                store.check_writable()
            except StoreError:
                return False
            store.staging.read_clock()
            self._began = True
        return True

    def count_sends(self, code: int, count: int = 1) -> None:
        """Count staged requests, for the statistics."""
        self._sends[code] = self._sends.get(code, 0) + count

    def count(self, code: int, count: int = 1) -> None:
        """Count requests that are answered with the pass, for the statistics."""
        self._served[code] = self._served.get(code, 0) + count

    def sent(self, frames: bytes, log_offset: int, *, waits: bool) -> None:
        """Add responses to staged sends, pending until they are written, or with *waits*, safe.

        *frames* is empty for oneway sends.
        """
        self.staged += 1
        if frames:
            self._owed.append((frames, log_offset, waits))

    def when_written(self, then: Callable[[int], None]) -> None:
        """Call *then* with the log's end when the staged records are written, or rejected."""
        self._then.append(then)

    def answer(self, frame: bytes) -> None:
        """Send *frame*, or a part of one, with the pass."""
        self.answers.append(frame)
        self.size_bytes += len(frame)

    def promise(self, frame: bytes) -> None:
        """Send *frame* with the pass, unless this broker may no longer lead its set by then."""
        if self._gate is not None:
            self._guarded.append(len(self.answers))
        self.answer(frame)

    def settle(self) -> None:
        """Write the staged records, so that they are stored, or rejected, before the next step."""
        if not self.staged:
            return
        store = self._store
        owed, self._owed = self._owed, []
        sends, self._sends = self._sends, {}
        self.staged = 0
        self._began = False
        try:
            end = store.commit()
        except StoreError as error:
            end = store.log.written_offset
            self._refuse(b"".join([one[0] for one in owed if one[1] >= end]), error)
            owed = [one for one in owed if one[1] < end]
            self._note(sends, store_error_response(error).code)
            sends = {}
        then, self._then = self._then, []
        for follow_up in then:
            follow_up(end)
        if store.safe_point.is_what_is_written or end <= store.safe_point.high_watermark:
            for frames, _, _ in owed:
                self.answer(frames)
            self._served = self._served | sends if self._served else sends
            return
        waiting = [frames for frames, _, waits in owed if waits]
        for frames, _, waits in owed:
            if not waits:
                self.answer(frames)
        if waiting:
            note = partial(self._note, sends)
            store.safe_point.when(end, _release(self.connection, b"".join(waiting), note))
        else:
            self._note(sends, ResponseCode.SUCCESS)

    def _note(self, counts: dict[int, int], response_code: int) -> None:
        for code, count in counts.items():
            self._times.record_requests(code, response_code, self.began_s, count)

    def _refuse(self, frames: bytes, error: StoreError) -> None:
        """Respond with *error*, in the place of *frames*."""
        response = store_error_response(error)
        refused = _decoder().feed(frames)
        for serialize_type, header, _ in refused:
            opaque = decode_header(serialize_type, header).opaque
            self.answer(_error_frame(response, opaque, serialize_type))
        self._stats.puts_refused(len(refused))

    def flush(self) -> None:
        """Settle and send everything."""
        self.settle()
        if self.answers:
            if self._gate is not None and self._guarded:
                hold_back(self._gate, self.connection, self.answers, self._guarded)
                self._guarded = []
            self.connection.write_parts(self.answers)
            self.answers = []
            self.size_bytes = 0
        if self._served:
            served, self._served = self._served, {}
            if self._has_waited:
                for code, count in served.items():
                    self._times.record_requests(
                        code, ResponseCode.SUCCESS, self.began_s, count, has_waited=True
                    )
            else:
                self._times.served(served, self.began_s)


def _release(
    connection: RemotingConnection, frames: bytes, note: Callable[[int], None]
) -> Callable[[StoreError | None], None]:
    def release(error: StoreError | None) -> None:
        connection.write(frames if error is None else encode_unconfirmed_frames(frames, error))
        note(ResponseCode.SUCCESS if error is None else choose_unconfirmed_code(error))

    return release


def _decoder() -> FrameDecoder:
    """Return a decoder of our own output: responses to large batches exceed the header limit."""
    return FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE)


def _error_frame(response: Response, opaque: int, serialize_type: int) -> bytes:
    return encode_command(
        Command(
            response.code,
            opaque,
            FLAG_RESPONSE,
            response.remark,
            ext={},
            serialize_type=serialize_type,
        )
    )
