"""The oracle of a turn's plain sends: Python decodes and encodes each frame that was served.

``take_sends`` has no Python twin of its own, because the general path is its oracle
(tests/property/test_hot_pass.py). That path needs a store, and is too slow for a fuzzer. So this
module computes the records, units, index keys and responses from the frames alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from rockhopper.broker.hot.plain_sends import Common, Front, Taken
from rockhopper.broker.store.log import encoding
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, Frame, FrameDecoder
from rockhopper.protocol.properties import decode_properties, join_properties
from rockhopper.protocol.requests.sending import SendMessageRequest, SendMessageRequestV2
from rockhopper.protocol.store.expected import hash_of_tags
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

Response = tuple[object, bool, int, dict[str, str]]
"""The connection, whether its producer waits, the opaque, and the fields."""

_TRANSACTION_FLAGS = 0xC


def _read_letters() -> dict[str, str]:
    """Return the name of each field in SEND_MESSAGE -> its letter in SEND_MESSAGE_V2."""
    long, short = (
        dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        for kind in (SendMessageRequest, SendMessageRequestV2)
    )
    return {long[name]: short[name] for name in long if name in short}


LETTERS = _read_letters()


class Send(NamedTuple):
    """One request: its fields by their letters in SEND_MESSAGE_V2, and its properties."""

    command: Command
    fields: dict[str, str]
    found: dict[str, str]
    born_host: bytes
    tail: QueueTail
    """That of the queue in the request."""

    @property
    def waits(self) -> bool:
        """Whether the producer waits until its message is safe."""
        return self.found.get("WAIT") != "false"

    @property
    def is_without_key(self) -> bool:
        """Whether the broker assigns the message's key."""
        is_batch = self.command.code == RequestCode.SEND_BATCH_MESSAGE
        return not is_batch and "UNIQ_KEY" not in self.found

    def with_key(self, key: str) -> "Send":
        """Return the send with this key, behind its other properties."""
        properties = join_properties({**self.found, "UNIQ_KEY": key})
        return self._replace(
            fields=self.fields | {"i": properties}, found=decode_properties(properties)
        )

    @property
    def origin(self) -> tuple[int, int, bytes]:
        """The flags, the time and the host of the message's birth."""
        sys_flag = int(self.fields["f"]) & ~_TRANSACTION_FLAGS
        return sys_flag, int(self.fields["g"]), self.born_host


class Written(NamedTuple):
    """The bytes of one request's messages, and the key of a single one."""

    tail: QueueTail
    records: bytes
    units: bytes
    packed_keys: bytes
    key: str | None


Head = Callable[[QueueTail], Any]
"""Returns the first arguments of the encoders, for the next record of a queue."""


def check(
    taken: Taken,
    fronts: list[Front],
    common: Common,
    ids: tuple[bytes, int],
    log_offset: int,
    store_time_ms: int,
) -> None:
    """Compare the result of ``take_sends`` with Python's. No tail may be advanced yet."""
    start, number = ids
    next_offsets: dict[QueueTail, int] = {}
    written: list[Written] = []
    responses: list[Response] = []
    for front, count in zip(fronts, taken.counts, strict=False):
        for frame in front[1][:count]:
            send = read_send(frame, front)
            if send.is_without_key:
                send = send.with_key(f"{start.decode()}{number & 0xFFFF:04X}")
                number += 1

            def head(tail: QueueTail, log_offset: int = log_offset, send: Send = send) -> Any:
                queue_offset = next_offsets.get(tail, tail.next_offset)
                place = tail.constants, log_offset, queue_offset, store_time_ms
                return *place, common.store_host, send.command.body

            one = write(send, common, head, store_time_ms)
            first_offset = next_offsets.get(one.tail, one.tail.next_offset)
            count_written = len(one.units) // CONSUME_QUEUE_UNIT.size
            assert count_written, "a batch without messages was served"
            next_offsets[one.tail] = first_offset + count_written
            log_offset += len(one.records)
            written.append(one)
            if not send.command.is_oneway:
                responses.append(respond(send, one, front[0], common, first_offset))
    assert taken.ids_used == number - ids[1]
    assert taken.records == b"".join(one.records for one in written)
    assert taken.packed_keys == b"".join(one.packed_keys for one in written)
    assert {run.tail: run.first_offset + run.count for run in taken.runs} == next_offsets
    for run in taken.runs:
        units = b"".join(one.units for one in written if one.tail is run.tail)
        assert (run.first_offset, b"".join(run.units)) == (run.tail.next_offset, units)
    assert read_responses(taken) == responses


def read_send(frame: Frame, front: Front) -> Send:
    """Decode a request, as the dispatcher would."""
    command = decode_header(*frame)
    ext = {name: str(value) for name, value in (command.ext or {}).items()}
    if command.code == RequestCode.SEND_MESSAGE:
        ext = {LETTERS[name]: value for name, value in ext.items() if name in LETTERS}
    fields = {"i": "", "j": "0"} | ext
    tail = front[3][fields["b"]][0][int(fields["e"])]
    return Send(command, fields, decode_properties(fields["i"]), front[2], tail)


def write(send: Send, common: Common, head: Head, store_time_ms: int) -> Written:
    """Encode the messages of one request."""
    fields, found, tail = send.fields, send.found, send.tail
    if send.command.code == RequestCode.SEND_BATCH_MESSAGE:
        whole: tuple[Any, ...] = *head(tail), *send.origin
        batch = encoding.encode_batch(*whole)
        assert batch is not None
        return Written(tail, *batch, None)
    if "TRAN_MSG" in found or "DELAY" in found:
        return defer(send, common, head, store_time_ms)
    rest = fields["i"], common.suffix, int(fields["h"]), *send.origin, int(fields["j"])
    message: tuple[Any, ...] = *head(tail), *rest
    plain = encoding.encode_plain(*message)
    assert plain is not None
    assert plain[4] == send.waits
    assert int(fields["f"]) & _TRANSACTION_FLAGS == 0
    return Written(tail, *plain[:4])


def defer(send: Send, common: Common, head: Head, store_time_ms: int) -> Written:
    """Encode a message that waits elsewhere; its target is behind its other properties."""
    fields, found, waiting = send.fields, send.found, common.waiting
    key = found["UNIQ_KEY"]
    target = f"REAL_TOPIC\x01{fields['b']}\x02REAL_QID\x01{fields['e']}\x02"
    if "TRAN_MSG" in found:
        assert waiting.half_topic is not None
        tail, code = waiting.tails[waiting.half_topic, 0], hash_of_tags(found.get("TAGS"))
        target = f"__transactionId__\x01{key}\x02{target}"
    else:
        level = int(found["DELAY"])
        tail = waiting.tails[waiting.delay_topic, level - 1]
        code = store_time_ms + waiting.delays_ms[level - 1]
    kept = fields["i"]
    if send.waits:
        kept = ("\x02" + kept).replace("\x02WAIT\x01true\x02", "\x02", 1)[1:]
    kept += "" if kept.endswith("\x02") else "\x02"
    properties = kept.encode() + common.suffix + target.encode()
    start = head(tail)
    rest = properties, int(fields["h"]), *send.origin, int(fields["j"])
    message: tuple[Any, ...] = *start, *rest
    record = encoding.encode_record(*message)
    unit = CONSUME_QUEUE_UNIT.pack(start[1], len(record), code)
    keys = encoding.index_keys(tail.constants, start[1], key, found.get("KEYS"))
    return Written(tail, record, unit, keys, key)


def respond(
    send: Send, written: Written, connection: object, common: Common, queue_offset: int
) -> Response:
    """Return the response to a request."""
    ext = {
        "msgId": encoding.message_ids(common.id_host.decode(), written.units),
        "queueId": send.fields["e"],
        "queueOffset": str(queue_offset),
    }
    if written.key is not None:
        ext["transactionId"] = written.key
    return connection, send.waits, send.command.opaque, ext


def read_responses(taken: Taken) -> list[Response]:
    """Return the responses in the result, without the fields of each broker."""
    found: list[Response] = []
    for connection, frames, waits in taken.owed:
        decoder = FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE)
        for frame in decoder.feed(frames):
            command = decode_header(*frame)
            assert (command.code, command.flag, command.body) == (0, 1, b"")
            ext = dict(command.ext or {})
            del ext["MSG_REGION"], ext["TRACE_ON"]
            found.append((connection, waits, command.opaque, ext))
        assert decoder.error is None
        assert not decoder.pending_bytes
    return found
