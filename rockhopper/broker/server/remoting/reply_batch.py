"""ReplyBatch: the responses of one pass over the frames of a connection, sent in one write.

Responses to plain sends do not belong to it: they leave when their messages are written
(hot/encoded_writes.py).
"""

from rockhopper.broker.server.loop.latencies import RequestTimes
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.held_answers import hold_back
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.protocol.codes import ResponseCode


class ReplyBatch:
    """The responses of one pass."""

    __slots__ = (
        "_answers",
        "_gate",
        "_guarded",
        "_has_waited",
        "_served",
        "_times",
        "began_s",
        "connection",
        "size_bytes",
    )

    def __init__(
        self,
        connection: RemotingConnection,
        times: RequestTimes,
        began_s: float,
        *,
        has_waited: bool = False,
        gate: LeaseGate | None = None,
    ) -> None:
        """*began_s* is when its frames were read, by the clock of *times*.

        If it *has_waited*, it is when messages arrived for them. Responses that promise state are
        sent through *gate*.
        """
        self._gate = gate
        self._guarded: list[int] = []
        self._times = times
        self._has_waited = has_waited
        self.began_s = began_s
        # Requests by code, to be counted when the pass ends.
        self._served: dict[int, int] = {}
        self.connection = connection
        self._answers: list[bytes] = []
        self.size_bytes = 0

    def count(self, code: int, count: int = 1) -> None:
        """Count requests that are answered with the pass, for the statistics."""
        self._served[code] = self._served.get(code, 0) + count

    def answer(self, frame: bytes) -> None:
        """Send *frame*, or a part of one, with the pass."""
        self._answers.append(frame)
        self.size_bytes += len(frame)

    def promise(self, frame: bytes) -> None:
        """Send *frame* with the pass, unless this broker may no longer lead its set by then."""
        if self._gate is not None:
            self._guarded.append(len(self._answers))
        self.answer(frame)

    def flush(self) -> None:
        """Send everything."""
        if self._answers:
            if self._gate is not None and self._guarded:
                hold_back(self._gate, self.connection, self._answers, self._guarded)
                self._guarded = []
            self.connection.write_parts(self._answers)
            self._answers = []
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
