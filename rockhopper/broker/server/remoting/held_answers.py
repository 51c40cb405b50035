"""Hold responses that promise state while the broker's lease may be over (lease_gate.py)."""

from functools import partial
from typing import Protocol

from rockhopper.broker.server.remoting.dispatcher import Response, choose_unconfirmed_code
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.protocol.codes import FLAG_RESPONSE, ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, Frame, FrameDecoder


class AnswerWriter(Protocol):
    """The connection of a client."""

    def write(self, data: bytes) -> None:
        """Send *data*."""


def hold_back(
    gate: LeaseGate, connection: AnswerWriter, answers: list[bytes], guarded: list[int]
) -> None:
    """Empty those of *answers*, by their numbers, that must not be written now."""
    if not guarded or gate.is_open():
        return
    frames = b"".join([answers[number] for number in guarded])
    for number in guarded:
        answers[number] = b""
    if frames:
        gate.hold(partial(_write, connection, frames))


def _write(connection: AnswerWriter, frames: bytes, error: StoreError | None) -> None:
    connection.write(frames if error is None else encode_unconfirmed_frames(frames, error))


def encode_unconfirmed_frames(frames: bytes, error: StoreError) -> bytes:
    """Return the same responses with a code for: done here, but unconfirmed due to *error*."""
    code = choose_unconfirmed_code(error)
    answers = []
    for serialize_type, header, _ in _split(frames):
        command = decode_header(serialize_type, header)
        if command.code == ResponseCode.SUCCESS:
            command.code = code
            command.remark = str(error)
        answers.append(encode_command(command))
    return b"".join(answers)


def encode_refused_frames(frames: bytes, response: Response) -> list[bytes]:
    """Return *response* in the place of each of *frames*, which are not sent."""
    refused = []
    for serialize_type, header, _ in _split(frames):
        opaque = decode_header(serialize_type, header).opaque
        refused.append(
            encode_command(
                Command(
                    response.code,
                    opaque,
                    FLAG_RESPONSE,
                    response.remark,
                    ext={},
                    serialize_type=serialize_type,
                )
            )
        )
    return refused


def _split(frames: bytes) -> list[Frame]:
    # Our own output: the response to a large batch exceeds the header limit for requests.
    return FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE).feed(frames)
