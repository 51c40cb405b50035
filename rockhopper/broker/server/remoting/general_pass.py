"""The general pass: decodes the headers of all frames in full, and responds with one write.

For servers without a hot path, like the name server.
"""

import time
from collections.abc import Callable

from rockhopper.broker.server.loop.fair_scheduler import PASS_BYTES_MAX, PASS_S
from rockhopper.broker.server.remoting.connection import FrameHandler, RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.held_answers import hold_back
from rockhopper.protocol.command import decode_header
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame


class GeneralPass(FrameHandler):
    """A frame handler that dispatches each request, and responds through the gate."""

    def __init__(
        self, dispatcher: Dispatcher, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock

    def serve_frames(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        """Serve *frames* in order; return how many were served."""
        dispatcher = self._dispatcher
        ends_at_s = self._clock() + PASS_S
        answers: list[bytes] = []
        guarded: list[int] = []
        size_bytes = taken = 0
        for serialize_type, header, body in frames:
            taken += 1
            try:
                command = decode_header(serialize_type, header, body)
            except MalformedHeaderError as error:
                self._write(connection, answers, guarded)
                connection.fail(error)
                return len(frames)
            if command.is_response:
                connection.response_received(command)
            else:
                answer = dispatcher.dispatch(connection, command)
                if dispatcher.gate is not None and dispatcher.promises_state(command.code):
                    guarded.append(len(answers))
                answers.append(answer)
                size_bytes += len(answer)
            if size_bytes > PASS_BYTES_MAX or self._clock() >= ends_at_s:
                break
        self._write(connection, answers, guarded)
        return taken

    def _write(
        self, connection: RemotingConnection, answers: list[bytes], guarded: list[int]
    ) -> None:
        if self._dispatcher.gate is not None:
            hold_back(self._dispatcher.gate, connection, answers, guarded)
        connection.write(b"".join(answers))
