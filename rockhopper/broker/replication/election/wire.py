"""The wire format between the replicas of a set, on the HA port. All integers are big-endian.

    HELLO      "RHHA" · version 2 · flags 2 (0) · size 4 · JSON · nonce 16        follower -> master
    CHALLENGE  1 · 0 · 0 · 0 · nonce 16 · proof 32                                master -> follower
    PROOF      2 · 0 · 0 · 0 · proof 32                                           follower -> master
    WELCOME    3 · 0 · 0 · 0 · size 4 · JSON                                      master -> follower
    DATA       4 · 0 · 0 · 0 · size 4 · epoch 8 · log offset 8 · confirmed 8 · crc32 4 · log bytes
    ACK        5 · flags 1 (bit 0: clean) · 0 · 0 · epoch 8 · held offset 8       follower -> master
    REFUSED    6 · 0 · 0 · 0 · size 4 · JSON                                      both
    TAKE OVER  7 · 0 · 0 · 0 · epoch 8                                            master -> follower

A HELLO begins with 0x52; RocketMQ's two dialects begin with 0x00. A DATA of size 0 is a heartbeat:
its log offset is the master's time in ms, or 0. Size is the length of the variable part behind the
fixed part: JSON or log bytes. The log bytes of one DATA belong to one epoch and one log file.

With a secret, the master answers a HELLO with a CHALLENGE, and the follower answers that with a
PROOF, before any other frame. A proof is an HMAC-SHA256 under the secret over "master" or
"follower", the HELLO, and the master's nonce. Each side contributes a nonce, so a recorded proof is
useless. Without a secret, both frames are omitted.
"""

import hmac
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.messages import (
    Ack,
    Beat,
    Hello,
    Message,
    Refused,
    TakeOver,
    Welcome,
)
from rockhopper.broker.replication.election.replica_set import Replica
from rockhopper.broker.store.log.fast_encoding import crc32

MAGIC = b"RHHA"
VERSION = 1
NONCE_SIZE_BYTES = 16
PROOF_SIZE_BYTES = 32
JSON_SIZE_BYTES_MAX = 1 << 18
DATA_SIZE_BYTES_MAX = 4 << 20
CLEAN = 1
ACK = 5

_HELLO = struct.Struct(">4sHHI")
_SIZED = struct.Struct(">BxxxI")
_DATA = struct.Struct(">BxxxIqqqI")
_ACK = struct.Struct(">BBxxqq")
_CHALLENGE = struct.Struct(f">Bxxx{NONCE_SIZE_BYTES}s{PROOF_SIZE_BYTES}s")
_PROOF = struct.Struct(f">Bxxx{PROOF_SIZE_BYTES}s")
_TAKE_OVER = struct.Struct(">Bxxxq")
_TYPES = {1: _CHALLENGE, 2: _PROOF, 3: _SIZED, 4: _DATA, ACK: _ACK, 6: _SIZED, 7: _TAKE_OVER}
_WIRE_NAMES = {"voted_epoch": "promise", "replicated_offset": "confirmed_offset"}


class WireError(Exception):
    """A peer sent an invalid frame; str() describes it, and the connection must be closed."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """A HELLO with the bytes that a proof signs."""

    hello: Hello
    cluster: str
    broker: str
    log_file_size_bytes: int
    signed: bytes


@dataclass(frozen=True, slots=True)
class Challenge:
    """A master's proof of the secret, and its nonce."""

    nonce: bytes
    proof: bytes


@dataclass(frozen=True, slots=True)
class Proof:
    """A follower's proof of the secret."""

    proof: bytes


@dataclass(frozen=True, slots=True)
class LogData:
    """A complete and verified piece of the log.

    Its head carries the confirmed offset like a heartbeat.
    """

    beat: Beat
    log_offset: int
    log_bytes: bytes


Frame = Greeting | Challenge | Proof | Welcome | LogData | Beat | Ack | Refused | TakeOver


def greeting(
    hello: Hello, *, cluster: str, broker: str, log_file_size_bytes: int, nonce: bytes
) -> bytes:
    """Encode a HELLO; *nonce* has NONCE_SIZE_BYTES."""
    document = _wire_fields(hello)
    document["cluster"], document["broker"] = cluster, broker
    document["log_file_size_bytes"] = log_file_size_bytes
    text = _json(document)
    return _HELLO.pack(MAGIC, VERSION, 0, len(text)) + text + nonce


def challenge(secret: bytes, signed: bytes, nonce: bytes) -> bytes:
    """Encode the master's answer to the HELLO *signed*."""
    return _CHALLENGE.pack(1, nonce, prove(secret, b"master", signed, nonce))


def proof(secret: bytes, signed: bytes, nonce: bytes) -> bytes:
    """Encode the follower's answer to a challenge with *nonce*."""
    return _PROOF.pack(2, prove(secret, b"follower", signed, nonce))


def prove(secret: bytes, who: bytes, signed: bytes, nonce: bytes) -> bytes:
    """Return a proof of the secret for this connection."""
    return hmac.digest(secret, who + signed + nonce, "sha256")


def encode(message: Message) -> bytes:
    """Encode any message of the machine except a Hello, which needs more than the machine knows."""
    match message:
        case Ack():
            flags = CLEAN if message.is_clean else 0
            return _ACK.pack(ACK, flags, message.epoch, message.acknowledgeable_offset)
        case Beat():
            return data_head(message, message.sent_at_ms, 0, 0)
        case Welcome():
            text = _json(asdict(message))
            return _SIZED.pack(3, len(text)) + text
        case Refused():
            text = _json(_wire_fields(message))
            return _SIZED.pack(6, len(text)) + text
        case TakeOver():
            return _TAKE_OVER.pack(7, message.epoch)
        case Hello():
            raise TypeError("a Hello is sent as a greeting")


def data_head(beat: Beat, log_offset: int, size_bytes: int, crc: int) -> bytes:
    """Encode the head in front of *size_bytes* log bytes with the CRC-32 *crc*."""
    return _DATA.pack(4, size_bytes, beat.epoch, log_offset, beat.replicated_offset, crc)


class WireDecoder:
    """Decodes frames from a stream of bytes; buffers no more of a frame than its size limit."""

    def __init__(self, *, is_greeting: bool = False) -> None:
        self._buffer = bytearray()
        self.is_greeting = is_greeting
        """Whether a frame may not yet be larger than a greeting."""

    @property
    def held_bytes(self) -> int:
        """The number of buffered bytes of an incomplete frame."""
        return len(self._buffer)

    def forget(self) -> None:
        """Drop the buffer; the connection is closed."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that *data* completes.

        Raises:
            WireError: the bytes are not a valid frame.
        """
        buffer = self._buffer
        if not buffer and len(data) == _ACK.size and data[0] == ACK:
            yield _ack_of(*_ACK.unpack(data))
            return
        if buffer:
            buffer += data
        source = buffer or data
        at = 0
        try:
            while at < len(source):
                if source[at] == MAGIC[0]:
                    found = _read_hello(source, at)
                else:
                    found = _read_typed(source, at, is_greeting=self.is_greeting)
                if found is None:
                    break
                frame, at = found
                yield frame
        finally:
            if source is buffer:
                del buffer[:at]
            else:
                buffer += source[at:]


def _read_hello(source: bytes | bytearray, at: int) -> tuple[Frame, int] | None:
    """Return the HELLO that begins at *at*, and its end; None if it is incomplete."""
    begins = bytes(source[at : at + len(MAGIC)])
    if not MAGIC.startswith(begins):
        raise WireError(f"{begins!r} is not the greeting of a replica")
    if len(source) < at + _HELLO.size:
        return None
    _, version, _, size = _HELLO.unpack_from(source, at)
    if version != VERSION:
        raise WireError(
            f"version {version} of the replication protocol, but this replica speaks {VERSION}"
        )
    _check_size(size, JSON_SIZE_BYTES_MAX)
    end = at + _HELLO.size + size + NONCE_SIZE_BYTES
    if len(source) < end:
        return None
    signed = bytes(source[at:end])
    return _greeting_of(signed[_HELLO.size : -NONCE_SIZE_BYTES], signed), end


def _read_typed(
    source: bytes | bytearray, at: int, *, is_greeting: bool
) -> tuple[Frame, int] | None:
    head = _TYPES.get(source[at])
    if head is None:
        raise WireError(f"a frame of type {source[at]}")
    body_at = at + head.size
    if len(source) < body_at:
        return None
    size = 0
    if head is _SIZED or head is _DATA:
        size = int.from_bytes(source[at + 4 : at + 8], "big")
        is_log = head is _DATA and not is_greeting
        _check_size(size, DATA_SIZE_BYTES_MAX if is_log else JSON_SIZE_BYTES_MAX)
    end = body_at + size
    if len(source) < end:
        return None
    with memoryview(source) as view:
        body = bytes(view[body_at:end])
    return _frame_of(head.unpack_from(source, at), body), end


def _check_size(size: int, size_max: int) -> None:
    if size > size_max:
        raise WireError(f"a frame of {size:,} bytes; {size_max:,} are allowed")


def _frame_of(head: tuple[Any, ...], body: bytes) -> Frame:
    match head:
        case (1, nonce, proof_of_master):
            return Challenge(nonce, proof_of_master)
        case (2, proof_of_follower):
            return Proof(proof_of_follower)
        case (3, _):
            return _welcome_of(body)
        case (4, size, epoch, log_offset, replicated_offset, crc):
            if not size:
                return Beat(epoch, replicated_offset, log_offset)
            if crc32(body) != crc:
                raise WireError(f"log bytes at {log_offset:,} with a wrong CRC")
            return LogData(Beat(epoch, replicated_offset), log_offset, body)
        case (5, flags, epoch, acknowledgeable_offset):
            return _ack_of(ACK, flags, epoch, acknowledgeable_offset)
        case (7, epoch):
            return TakeOver(epoch)
        case _:
            return _decode_refused(body)


def _ack_of(_: int, flags: int, epoch: int, acknowledgeable_offset: int) -> Ack:
    return Ack(epoch, acknowledgeable_offset, bool(flags & CLEAN))


def _wire_fields(message: Hello | Refused) -> dict[str, Any]:
    """The fields of *message* by their names on the wire, in order."""
    return {_WIRE_NAMES.get(name, name): value for name, value in asdict(message).items()}


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _document(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"JSON that cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise WireError("JSON that is not an object")
    return document


class _Fields:
    """Typed access to the fields of a JSON object."""

    def __init__(self, text: bytes) -> None:
        self._document = _document(text)

    def get(self, name: str, kind: type) -> Any:
        value = self._document.get(name)
        if type(value) is not kind:
            raise WireError(f"{name} is {str(value)[:100]!r}")
        return value

    def epochs(self) -> tuple[Epoch, ...]:
        entries = self.get("epochs", list)
        for entry in entries:
            if type(entry) is not list or [type(each) for each in entry] != [int, int]:
                raise WireError(f"epochs has {str(entry)[:100]}")
        return tuple(Epoch(*entry) for entry in entries)

    def replica(self) -> Replica:
        match self.get("replica", list):
            case [int(number), str(store)]:
                return Replica(number, store)
        raise WireError("replica is not an id and a store")


def _greeting_of(text: bytes, signed: bytes) -> Greeting:
    fields = _Fields(text)
    hello = Hello(
        replica=fields.replica(),
        incarnation=fields.get("incarnation", str),
        voted_epoch=fields.get("promise", int),
        is_clean=fields.get("is_clean", bool),
        replicated_offset=fields.get("confirmed_offset", int),
        log_end=fields.get("log_end", int),
        epochs=fields.epochs(),
    )
    return Greeting(
        hello,
        fields.get("cluster", str),
        fields.get("broker", str),
        fields.get("log_file_size_bytes", int),
        signed,
    )


def _welcome_of(text: bytes) -> Welcome:
    fields = _Fields(text)
    return Welcome(
        epoch=fields.get("epoch", int),
        epochs=fields.epochs(),
        log_start=fields.get("log_start", int),
        log_end=fields.get("log_end", int),
        whole_offset=fields.get("whole_offset", int),
        common_end=fields.get("common_end", int),
        seed=fields.get("seed", bool),
    )


def _decode_refused(text: bytes) -> Refused:
    fields = _Fields(text)
    return Refused(voted_epoch=fields.get("promise", int), why=fields.get("why", str))
