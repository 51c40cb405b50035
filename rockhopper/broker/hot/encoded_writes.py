"""EncodedWrites: writes messages that compiled code has encoded, and responds to their producers.

Used by the plain sends of the kernel, and by features whose plain requests store messages. All
messages of one write are in the log, or none is. A response leaves when its message is written, or,
if its producer waits, when it is as safe as the settings require. A response that need not wait
leaves before its message is dispatched, so that the client works meanwhile. Readers cannot see the
difference: no other request is served in between.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rockhopper.broker.hot.parts import HotKernel
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import (
    choose_unconfirmed_code,
    store_error_response,
)
from rockhopper.broker.server.remoting.held_answers import (
    encode_refused_frames,
    encode_unconfirmed_frames,
)
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.queues.queue_tail import Run
from rockhopper.protocol.codes import ResponseCode

Owed: TypeAlias = tuple[RemotingConnection, bytes, bool]
"""Response frames for a connection, and whether its producer waits until its messages are safe."""
Place: TypeAlias = tuple[int, int, int]
"""The log offset of the next record, the one that records may reach, and the store time in ms."""


class EncodedWrites:
    """Writes to one store."""

    def __init__(self, kernel: HotKernel) -> None:
        self._store = kernel.store
        self._stats = kernel.stats
        self._times = kernel.request_times

    def find_place(self) -> Place | None:
        """Read the clock and return where to encode records for; None: the store accepts none."""
        store = self._store
        if not store.is_writable or store.safe_point.is_busy:
            return None
        store.staging.read_clock()
        return store.staging.place()

    def write(
        self,
        records: bytes,
        runs: list[Run],
        packed_keys: bytes,
        owed: Sequence[Owed],
        counts: Mapping[int, int],
        began_s: float,
    ) -> bool:
        """Write *records*, encoded for ``find_place``; return whether the log has them.

        *counts* are the requests by code, read at *began_s*, for the statistics.
        """
        safe_point = self._store.safe_point
        try:
            staged = self._store.append_encoded(records, runs, packed_keys)
        except StoreError as error:
            self._refuse(owed, error)
            self._note(counts, began_s, store_error_response(error).code)
            return False
        if safe_point.is_what_is_written:
            try:
                for connection, frames, _ in owed:
                    connection.write(frames)
            finally:
                safe_point.hand_on(staged)
            self._times.served(counts, began_s)
            return True
        safe_point.hand_on(staged)
        self._answer_when_safe(staged.end, owed, counts, began_s)
        return True

    def _answer_when_safe(
        self, end: int, owed: Sequence[Owed], counts: Mapping[int, int], began_s: float
    ) -> None:
        safe_point = self._store.safe_point
        if end <= safe_point.high_watermark:
            for connection, frames, _ in owed:
                connection.write(frames)
            self._times.served(counts, began_s)
            return
        waiting = [one for one in owed if one[2]]
        for connection, frames, waits in owed:
            if not waits:
                connection.write(frames)
        if waiting:
            safe_point.when(end, self._release(waiting, counts, began_s), len(waiting))
        else:
            self._note(counts, began_s, ResponseCode.SUCCESS)

    def _note(self, counts: Mapping[int, int], began_s: float, response_code: int) -> None:
        for code, count in counts.items():
            self._times.record_requests(code, response_code, began_s, count)

    def _refuse(self, owed: Sequence[Owed], error: StoreError) -> None:
        response = store_error_response(error)
        for connection, frames, _ in owed:
            refused = encode_refused_frames(frames, response)
            self._stats.puts_refused(len(refused))
            connection.write(b"".join(refused))

    def _release(
        self, waiting: Sequence[Owed], counts: Mapping[int, int], began_s: float
    ) -> Callable[[StoreError | None], None]:
        def release(error: StoreError | None) -> None:
            for connection, frames, _ in waiting:
                connection.write(
                    frames if error is None else encode_unconfirmed_frames(frames, error)
                )
            code = ResponseCode.SUCCESS if error is None else choose_unconfirmed_code(error)
            self._note(counts, began_s, code)

        return release
