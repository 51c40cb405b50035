"""The general pass: decodes the headers of all frames in full, and responds with one write.

For servers without a hot path, like the name server.
"""

import time
from collections.abc import Callable

from rockhopper.broker.server.loop.fair_scheduler import PASS_BYTES_MAX, PASS_S
from rockhopper.broker.server.remoting.held_answers import hold_back
from rockhopper.broker.server.remoting.promises import PROMISES_NOTHING
from rockhopper.broker.server.remoting.server import FrameHandler, RemotingConnection
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame


def frame_handler(
    dispatch: Callable[[RemotingConnection, Command], bytes],
    clock: Callable[[], float] = time.perf_counter,
    gate: LeaseGate | None = None,
) -> FrameHandler:
    """Return a handler that calls *dispatch* for each request and responds through *gate*."""

    def handle(connection: RemotingConnection, frames: list[Frame]) -> int:
        ends_at_s = clock() + PASS_S
        answers: list[bytes] = []
        guarded: list[int] = []
        size_bytes = taken = 0
        for serialize_type, header, body in frames:
            taken += 1
            try:
                command = decode_header(serialize_type, header, body)
            except MalformedHeaderError as error:
                write(connection, answers, guarded)
                connection.fail(error)
                return len(frames)
            if command.is_response:
                connection.response_received(command)
            else:
                answer = dispatch(connection, command)
                if gate is not None and command.code not in PROMISES_NOTHING:
                    guarded.append(len(answers))
                answers.append(answer)
                size_bytes += len(answer)
            if size_bytes > PASS_BYTES_MAX or clock() >= ends_at_s:
                break
        write(connection, answers, guarded)
        return taken

    def write(connection: RemotingConnection, answers: list[bytes], guarded: list[int]) -> None:
        if gate is not None:
            hold_back(gate, connection, answers, guarded)
        connection.write(b"".join(answers))

    return handle
