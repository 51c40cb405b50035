"""What is done with the bytes that the fuzzer makes: its first byte chooses the function.

Beside the sanitizers it is an error when a compiled function says something else than its Python
twin, or raises what it should not.
"""

import base64
import hmac
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rockhopper.broker.hot import _pulls, _requests, _sends
from rockhopper.broker.hot.hot_codec import decode_pull, json_frame, pieces, templates
from rockhopper.broker.hot.plain_sends import DeferredSends, Taken, common
from rockhopper.broker.hot.similar_requests import (
    RequestShape,
    encode_similar_in_python,
    read_similar_in_python,
)
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.files import _mapping
from rockhopper.broker.store.log import _encoding, checking, encoding, selecting
from rockhopper.broker.store.queues import _appending, unit_files
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.inventory import digest_files_in_python
from rockhopper.client import _messages
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage, receive_in_python
from rockhopper.client.sending.plain_batches import encode_in_python
from rockhopper.protocol import _framing
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame, FrameDecoder, split_in_python
from rockhopper.protocol.headers.header_fields import LANGUAGE_BY_NAME
from rockhopper.protocol.message import Message
from rockhopper.protocol.names import (
    SCHEDULE_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
)
from rockhopper.protocol.signing import ACCESS_KEY, SIGNATURE, build_signed_content
from rockhopper.protocol.store import _walking, walking
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN
from rockhopper.protocol.store.walking import TIMED_KEY
from tests.fuzz import expected_sends, grpc_sends, http2_twins
from tests.fuzz.appended_runs import append_runs

STORE_HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
V6_HOST = bytes(16) + b"\0\0\x2a\x9f"
SIGNER = "al"
NO_SIGNATURE = "A" * 28
LOG_OFFSET = 4096
NOW_MS = 1_700_000_000_000
TOPIC = "orders"
CONSTANTS = encoding.queue_constants(TOPIC, 1)
TAILS = [QueueTail(TOPIC, number, 7, is_batch=False) for number in range(3)]
for tail in TAILS:
    tail.consume_queue = cast("UnitQueue", object())
SENDABLE = {TOPIC: (TAILS, Traffic())}
_ANSWERS = templates("DefaultRegion", STORE_HOST, trace_on=True)
PULL_PIECES = pieces(_ANSWERS.pulled.replace("%d", "0", 1).replace("%s", "FOUND"))
DELAYS_MS = (1000, 5000)
WAITING_TAILS = {
    (topic, number): QueueTail(topic, number, 7, is_batch=False)
    for topic, number in ((SCHEDULE_TOPIC, 0), (SCHEDULE_TOPIC, 1), (TRANSACTION_HALF_TOPIC, 0))
}
for tail in WAITING_TAILS.values():
    tail.consume_queue = cast("UnitQueue", object())
WAITING = DeferredSends(
    WAITING_TAILS, DELAYS_MS, SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC, half_traffic := Traffic()
)
COMMON = common(_ANSWERS, STORE_HOST, b"C\x01c\x02", 512, WAITING)
ACKS = RequestShape(200051, (b"consumerGroup", b"topic", b"extraInfo"), (b"queueId", b"offset"), 2)
OP_CONSTANTS = encoding.queue_constants(TRANSACTION_OP_HALF_TOPIC, 0)

_encoding.set_fallbacks(
    encoding.encode_plain, encoding.encode_batch, encoding.encode_run, encoding.count_run
)
IDS = b"7F0000010001CAFED00D00000001", 0xFFFD
_sends.set_classes(Run, QueueTail, Traffic)
_appending.set_classes(Run, QueueTail, ConsumeQueue)
_messages.set_received(ReceivedMessage)
_messages.set_message(Message)
_messages.set_command(Command, LANGUAGE_BY_NAME)


def frames_of(data: bytes) -> list[Frame]:
    """Frames as they stand in a stream, or one whose header is everything."""
    decoder = FrameDecoder()
    frames = decoder.feed(data)
    return frames or [(data[0] & 1, data[1:], b"body")] if data else []


def take_sends(data: bytes) -> None:
    """The frames of a stream, each the next one of one of three connections."""
    frames = frames_of(data[1:])
    hosts = (STORE_HOST, V6_HOST) if data[0] & 1 else (V6_HOST, STORE_HOST)
    fronts: list[Any] = [
        (n, frames[n::3], hosts[n % 2], SENDABLE, None) for n in range(min(3, len(frames)))
    ]
    room_end = LOG_OFFSET + 8 * data[0] * data[0]
    count_max = 384 if data[0] & 2 else 2
    ids = IDS if data[0] & 4 else (b"", 0)
    place = LOG_OFFSET, room_end, NOW_MS
    taken = Taken(*_sends.take_sends(fronts, count_max, COMMON, *ids, *place))
    records, counted = taken.records, taken.traffic
    end = LOG_OFFSET + len(records)
    assert sum(taken.counts) == taken.sends + taken.batches <= count_max
    assert all(
        0 <= count <= len(front[1]) for count, front in zip(taken.counts, fronts, strict=False)
    )
    assert len(taken.unknown) <= len(taken.counts) <= len(fronts)
    assert end <= max(room_end, LOG_OFFSET)
    assert max((run.end for run in taken.runs), default=LOG_OFFSET) == end
    assert sum(one[3] for one in counted) == len(records)
    assert sum(run.count for run in taken.runs) == sum(
        len(run.units[0]) // 20 for run in taken.runs
    )
    assert len(taken.packed_keys) % encoding.INDEX_KEY.size == 0
    for run in taken.runs:
        decode_messages(b"".join(_records_of(records, run.units[0])))
    half_count = sum(messages for traffic, messages, _, _ in counted if traffic is half_traffic)
    assert len(taken.halves or ()) == half_count
    _sends.count_up(counted)
    expected_sends.check(taken, fronts, COMMON, ids, LOG_OFFSET, NOW_MS)


class Connection:
    """A connection's bytes that are no frame yet, and its frames that are not served yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.frames: list[Frame] = []
        self._decoder, self._rest = FrameDecoder(), b""

    def feed(self, data: bytes) -> bool:
        """Take bytes; return whether they are a stream's."""
        self._rest += data
        frames, end = _framing.split_frames(self._rest, 1 << 24, 1 << 18)
        self._rest = self._rest[end:]
        assert frames == self._decoder.feed(data)
        self.frames += frames
        return self._decoder.error is None


def serve_turns(data: bytes) -> None:
    """Connections whose bytes arrive in pieces, served in turns; some close in between.

    who 1   size 1   bytes: bits of *who* are the connection (0-7), 8: it closes, 16: a turn follows
    """
    for tail in (*TAILS, *WAITING_TAILS.values()):
        tail.next_offset = 7
    connections: dict[int, Connection] = {}
    log_offset, at = LOG_OFFSET, 0
    while at + 2 <= len(data):
        who, size = data[at : at + 2]
        number = who & 7
        if not connections.setdefault(number, Connection(number)).feed(data[at + 2 :][:size]) or (
            who & 8
        ):
            del connections[number]
        at += 2 + size
        if who & 16 or at + 2 > len(data):
            log_offset = serve_turn(list(connections.values()), log_offset)


def serve_turn(connections: list[Connection], log_offset: int) -> int:
    """Serve all frames: as many as compiled code takes, then one of each by the dispatcher."""
    while any(one.frames for one in connections):
        hosts = STORE_HOST, V6_HOST
        fronts: list[Any] = [
            (one.number, one.frames, hosts[one.number & 1], SENDABLE, None) for one in connections
        ]
        limits = 5, COMMON, *IDS, log_offset, LOG_OFFSET + (1 << 20), NOW_MS
        taken = Taken(*_sends.take_sends(fronts, *limits))
        expected_sends.check(taken, fronts, COMMON, IDS, log_offset, NOW_MS)
        _appending.take_offsets(taken.runs)
        for run in taken.runs:
            assert run.tail.next_offset == run.first_offset + run.count
        log_offset += len(taken.records)
        for one, count in zip(connections, taken.counts, strict=False):
            del one.frames[:count]
        if not taken.is_cut:
            for one in connections:
                del one.frames[:1]
    return log_offset


def _records_of(records: bytes, units: bytes) -> Iterator[bytes]:
    for log_offset, size_bytes, _ in CONSUME_QUEUE_UNIT.iter_unpack(units):
        yield records[log_offset - LOG_OFFSET :][:size_bytes]


def end_transactions(data: bytes) -> None:
    """The record of a half message, its size set right."""
    record = (len(data) - 1).to_bytes(4, "big") + data[5:]
    log_offset = int.from_bytes(record[28:36], "big", signed=True)
    place = _encoding.half_place(record, log_offset)
    head = record, data[0], CONSTANTS, 7, OP_CONSTANTS, 9, LOG_OFFSET, NOW_MS
    made = _encoding.encode_end(*head, STORE_HOST, NOW_MS)
    assert made is not None or place is None
    if made is None:
        return
    records, size_bytes, units, packed_keys = made
    final, op = decode_message(records[:size_bytes]), decode_message(records[size_bytes:])
    assert final.properties.keys().isdisjoint({"REAL_TOPIC", "REAL_QID"})
    assert op.properties == {"TAGS": "d", "RH_FINAL": str(LOG_OFFSET)}
    assert b"".join(_records_of(records, units)) == records
    assert len(packed_keys) % encoding.INDEX_KEY.size == 0


PULL_TEST: selecting.Test = (b"TAGS", b"KEYS"), {}, lambda key: len(key) % 3 > 0


def expected_pull(
    pull: Any, units: bytes, test: selecting.Test | None, limits: Any
) -> tuple[int, int, bytes] | None:
    """Return how far a pull reads, how many messages it gets, and these; *units* are the rest."""
    whose = b"\6orders", pull.queueId, pull.queueOffset
    count_max = min(max(1, pull.maxMsgNums), 4)
    if test is None:
        sound = checking.gather_sound(
            *whose, units[: 20 * count_max], count_max, 600, limits[3:6], limits[6]
        )
        return None if sound is None else (sound[0], *sound)
    chosen = selecting.select_sound(
        whose, units[: 20 * 8], count_max, 600, limits[3:6], limits[6], test
    )
    return chosen if chosen is not None and chosen[1] else None


def take_pulls(data: bytes) -> None:
    """Up to 7 units, a header up to a zero, and the log."""
    count, low = data[0] & 7, 7
    units, rest = data[1 : 1 + 20 * count].ljust(20 * count, b"\0"), data[1 + 20 * count :]
    header, _, log = rest.partition(b"\0")
    queue: Any = SimpleNamespace(
        topic_field=b"\6orders",
        min_offset=low,
        max_offset=low + count,
        mapping=units,
        mapping_start=low * 20,
    )
    frames: list[Frame] = [(0, header, b"")] * 2
    limits = PULL_PIECES, (4, 600, 1 << 20, 8), 1 << 16, log, 0, len(log), 1 << 62
    served, *nothing = _pulls.take_pulls([(frames, 0, {}, True)] * 2, *limits)
    assert served[0] == served[1]
    taken, answers, key, misplaced, _, parked = served[0]
    assert (taken, answers, misplaced, parked, nothing) == (0, None, None, [], [[], []])
    if key is None:
        return
    request = decode_pull(header)
    pull = request.extFields
    test = PULL_TEST if data[0] & 16 else None
    expected = None
    if low <= pull.queueOffset < low + count:
        expected = expected_pull(pull, units[(pull.queueOffset - low) * 20 :], test, limits)
    entry: Any = queue, None, None, TOPIC, "group", [], test
    if data[0] & 8:
        # Nothing stands in the newest files, and all of it in the noted ones.
        entry[5].extend((units, low * 20, log, 0, len(log)))
        queue.mapping, limits = b"", (*limits[:3], log, len(log), len(log), *limits[6:])
    # Two frames of one connection, and the second one of another.
    fronts: list[Any] = [(frames, first, {key: entry}, True) for first in (0, 1)]
    served, counted, commits = _pulls.take_pulls(fronts, *limits)
    whole, half = served
    assert (whole[0], whole[2:5], whole[5][1:]) == (2 * half[0], half[2:5], half[5])
    if 0 < count == pull.queueOffset - low and pull.sysFlag & 2:
        waiting = entry, pull.queueOffset, pull.suspendTimeoutMillis
        assert (half[:2], half[5], counted) == ((1, None), [(1, *waiting)], [])
        return
    assert half[5] == []
    if expected is None:
        assert (half[:2], counted, commits) == ((0, None), [], [])
        return
    scanned, found, records = expected
    next_offset = pull.queueOffset + scanned
    values = 0, next_offset, low, low + count, request.opaque, "FOUND"
    answer = json_frame(_ANSWERS.pulled, values, len(records)) + records
    assert (whole[:2], half[:2]) == ((2, answer * 2), (1, answer))
    offsets = next_offset, next_offset
    tested = 3 * scanned * (test is not None)
    assert counted == [(entry, 3, 3 * found, 3 * len(records), *offsets, tested)]
    commit = TOPIC, "group", pull.queueId, pull.commitOffset
    assert commits == [commit] * (3 * (pull.sysFlag & 1 and pull.commitOffset >= 0))


def walk_plain(data: bytes) -> None:
    check_crc = bool(data[0] & 1)
    log = bytes(data[0] >> 4) + data[1:]
    arguments = log, data[0] >> 4, len(log), 0, check_crc
    assert _walking.walk_plain(*arguments) == walking.walk_plain(*arguments)
    for end in (len(log), len(log) - data[0] % (len(log) + 1)):
        part = log, data[0] >> 4, end
        assert _walking.whole_end(*part) == walking.whole_end(*part)


def gather_sound(data: bytes) -> None:
    count = data[0] & 7
    units, log = data[1 : 1 + 20 * count], data[1 + 20 * count :]
    for base in (0, 4096):
        arguments = b"\6orders", 1, 7, units, 4, 600, (log, base, base + len(log)), 1 << 62
        if len(units) % 20 == 0:
            assert _encoding.gather_sound(*arguments) == checking.gather_sound(*arguments)
            sound = b"\6orders", 1, 7, units, count, log, 1 << 62
            assert _encoding.count_sound(*sound) == checking.count_sound(*sound)


def select_sound(data: bytes) -> None:
    count = data[0] & 7
    units, log = data[1 : 1 + 20 * count], data[1 + 20 * count :]
    arguments = (b"\6orders", 1, 7), units, 4, 600, (log, 0, len(log)), data[0] << 8
    found = []
    for module in (_encoding, selecting):
        verdicts: dict[bytes, bool] = {}
        judged: list[bytes] = []

        def judge(key: bytes, verdicts: Any = verdicts, judged: Any = judged) -> bool | None:
            judged.append(key)
            if len(key) % 7 == 6:
                return None
            verdict: bool = sum(key) % 3 > 0
            verdicts[key] = verdict
            return verdict

        test = (b"TAGS", b"KEYS", b"a"), verdicts, judge
        if len(units) % 20 == 0:
            found.append((module.select_sound(*arguments, test), judged))
    assert found[:1] == found[1:]


def encode_plain(data: bytes) -> None:
    size = data[0]
    properties, body = data[1 : 1 + size].decode(errors="replace"), data[1 + size :]
    arguments = (
        *(CONSTANTS, LOG_OFFSET, 7, NOW_MS, STORE_HOST, body, properties, b"C\x01c\x02"),
        *(size, size & 0xF3, NOW_MS, V6_HOST, 0),
    )
    assert _encoding.encode_plain(*arguments) == encoding.encode_plain(*arguments)


def encode_batch(data: bytes) -> None:
    arguments = CONSTANTS, LOG_OFFSET, 7, NOW_MS, V6_HOST, data[1:], data[0], NOW_MS, STORE_HOST
    assert _encoding.encode_batch(*arguments) == encoding.encode_batch(*arguments)
    run = *arguments[:6], b"C\x01c\x02", NOW_MS
    assert _encoding.encode_run(*run) == encoding.encode_run(*run)
    assert _encoding.count_run(data[1:], bytes(700)) == encoding.count_run(data[1:], bytes(700))


def put_timed_entries(data: bytes) -> None:
    """Slots and entries as they come, and keys that are to be put among them."""
    size = TIMED_KEY.size
    split = min(data[0] & 3, (len(data) - 1) // size) * size + 1
    keys, rest = data[1:split], data[split:]
    # A hash is never negative.
    keys = b"".join(
        TIMED_KEY.pack(key_hash & 0x7FFFFFFF, *others)
        for key_hash, *others in TIMED_KEY.iter_unpack(keys)
    )
    files: list[Any] = [bytearray(rest.ljust(40 + 4 * 5 + 20 * 8, b"\0")) for _ in range(2)]
    used = _encoding.put_timed_entries(files[0], 5, 60, 2, NOW_MS, memoryview(keys))
    assert used == encoding.put_timed_entries(files[1], 5, 60, 2, NOW_MS, memoryview(keys))
    assert files[0] == files[1]


def put_entries(data: bytes) -> None:
    """The same with keys of one time; and ids and checksums of the bytes."""
    size = encoding.INDEX_KEY.size
    split = min(data[0] & 3, (len(data) - 1) // size) * size + 1
    keys = b"".join(
        encoding.INDEX_KEY.pack(key_hash & 0x7FFFFFFF, offset)
        for key_hash, offset in encoding.INDEX_KEY.iter_unpack(data[1:split])
    )
    files: list[Any] = [bytearray(data[split:].ljust(40 + 4 * 5 + 20 * 8, b"\0")) for _ in range(2)]
    used = _encoding.put_entries(files[0], 5, 60, 2, 17, keys)
    assert used == encoding.put_entries(files[1], 5, 60, 2, 17, keys)
    assert files[0] == files[1]
    assert _encoding.crc32(data) == zlib.crc32(data)
    units = b"".join(
        CONSUME_QUEUE_UNIT.pack(offset & ((1 << 63) - 1), 99, 0)
        for offset, _ in encoding.INDEX_KEY.iter_unpack(data[: len(data) // size * size])
        if offset
    )
    if units:
        assert _encoding.message_ids("7F", units) == encoding.message_ids("7F", units)


def split_frames(data: bytes) -> None:
    for limits in ((1 << 24, 1 << 18), (data[0], data[0] >> 1)):
        assert _framing.split_frames(data[1:], *limits) == split_in_python(data[1:], *limits)


def receive(data: bytes) -> None:
    """An answer to a pull, from some place on."""
    arguments = MessageQueue(TOPIC, "a", 0), data[1:], min(data[0], len(data) - 1), TOPIC.encode()
    (made, end), (expected, expected_end) = (
        function(*arguments) for function in (_messages.receive, receive_in_python)
    )
    assert end == expected_end
    names = ("queue", "queue_offset", "size_bytes", "deserializer", "_body", "_rest")
    for one, other in zip(made, expected, strict=True):
        assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]


def encode_messages(data: bytes) -> None:
    """Bodies between zeros; the first byte makes the last message another one."""
    bodies = data[1:].split(b"\0")
    messages = [Message(TOPIC, body, flag=len(body)) for body in bodies]
    odd: dict[int, dict[str, object]] = {
        0: {"tags": "t"},
        1: {"flag": 1 << 31},
        2: {"wait_stored": False},
        3: {"topic": "t"},
    }
    for name, value in odd.get(data[0] & 7, {}).items():
        setattr(messages[-1], name, value)
    arguments = messages, TOPIC, 8 * data[0], b"K\x01", "AB" * (data[0] & 3), b"\x02", data[0] << 9
    assert _messages.encode_plain(*arguments) == encode_in_python(*arguments)


def read_short_queue(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        with open(f"{directory}/{'0' * 20}", "wb") as file:
            file.write(data[4:])
            file.truncate(max(len(data), 40_000))
        log_end = int.from_bytes(data[:4], "big")
        found = _mapping.read_short_queue(directory, log_end)
        assert found == unit_files.read_short_queue_in_python(directory, log_end)


def digest_files(data: bytes) -> None:
    """Names of files, between zeros; the first byte says which exist."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        names = [name.hex() for name in data[1:].split(b"\0")]
        paths = [f"{directory}/{name}" for name in names]
        for number, path in enumerate(paths):
            if len(names[number]) < 200 and data[0] >> (number & 7) & 1:
                Path(path).mkdir(exist_ok=True)
                Path(path, "first").write_bytes(data[: number + 1])
        for suffix in ("", "/first", "/" + "x" * 16 * data[0]):
            made = _mapping.digest_files(paths, suffix)
            assert made == digest_files_in_python(paths, suffix)


def read_answer(data: bytes) -> None:
    """A header, plain or not."""
    made = _messages.read_answer(data, b"body")
    try:
        expected = decode_header(0, data, b"body")
    except MalformedHeaderError:
        expected = None
    assert made is None or made == expected


def take_signed_sends(data: bytes) -> None:
    """A secret and the frames of a stream; with an odd first byte, they are signed with it."""
    secret_end = 1 + (data[0] >> 1)
    secret, stream = data[1:secret_end], data[secret_end:]
    signers: Any = {SIGNER: (_sends.make_key(secret), SENDABLE)}
    for frame in frames_of(stream):
        if data[0] & 1:
            frame = _sign_frame(secret, frame)
        fronts: list[Any] = [(0, [frame], STORE_HOST, SENDABLE, signers)]
        place = LOG_OFFSET, 1 << 30, NOW_MS
        taken = Taken(*_sends.take_sends(fronts, 2, COMMON, *IDS, *place))
        is_taken = taken.counts == [1] or bool(taken.unknown)
        found = _sends.find_signer(frame, signers)
        assert found in (None, SIGNER)
        if is_taken or found:
            ext = decode_header(*frame).ext or {}
            assert ext[ACCESS_KEY] == SIGNER
            assert ext[SIGNATURE] == _signature_of(secret, frame)


def _signature_of(secret: bytes, frame: Frame) -> str:
    command = decode_header(*frame)
    content = build_signed_content(command.ext or {}, command.body, command.version)
    return base64.b64encode(hmac.digest(secret, content, "sha1")).decode()


def _sign_frame(secret: bytes, frame: Frame) -> Frame:
    """Replace the signature of a frame that has one."""
    kind, header, body = frame
    try:
        before = (decode_header(*frame).ext or {}).get(SIGNATURE, "").encode()
    except MalformedHeaderError:
        return frame
    if len(before) != len(NO_SIGNATURE):
        return frame
    return kind, header.replace(before, _signature_of(secret, frame).encode()), body


def read_similar(data: bytes) -> None:
    """The frames of a stream, as acknowledgements of pops, and answers to those that are."""
    frames = frames_of(data[1:])
    texts, rows = _requests.read_similar(frames, data[0] & 1, ACKS)
    expected_texts, expected = read_similar_in_python(frames, data[0] & 1, ACKS)
    assert rows == expected[: len(rows)]
    assert not rows or texts == expected_texts
    opaques = [row[0] for row in rows]
    head, tail = data[:9], data[9:]
    if head.isascii() and tail.isascii():
        made = _requests.encode_similar(head, tail, opaques)
        assert made == encode_similar_in_python(head, tail, opaques)


def read_grpc_send(data: bytes) -> None:
    """A request of a RocketMQ 5 client, and the reply to it."""
    found = grpc_sends.check(data)
    if found is not None:
        grpc_sends.check_reply(found.message_id, found.born_time_ms)


def encode_grpc_delivery(data: bytes) -> None:
    """The reply with a record whose size is set right."""
    record = len(data[2:]).to_bytes(4, "big") + data[6:]
    if len(record) >= RECORD_SIZE_BYTES_MIN:
        grpc_sends.check_delivery(record, "s%t", "s" if data[0] & 1 else "", "1 2", data[1], -1)


def read_http2(data: bytes) -> None:
    """The frames of a RocketMQ 5 client, in pieces, and an answer."""
    http2_twins.check(data[1:], data[0] * data[0] + 1)
    http2_twins.check_answer(data[0], data[1:40], data, data[40:])


TARGETS: tuple[Callable[[bytes], Any], ...] = (
    take_sends,
    walk_plain,
    gather_sound,
    encode_plain,
    encode_batch,
    put_timed_entries,
    split_frames,
    take_pulls,
    select_sound,
    end_transactions,
    receive,
    encode_messages,
    read_short_queue,
    read_answer,
    serve_turns,
    append_runs,
    put_entries,
    digest_files,
    take_signed_sends,
    read_similar,
    read_grpc_send,
    read_http2,
    encode_grpc_delivery,
)


def run(data: bytes) -> None:
    """Do one of them with *data*."""
    if len(data) > 1:
        TARGETS[data[0] % len(TARGETS)](data[1:])
