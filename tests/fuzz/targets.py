"""What is done with the bytes that the fuzzer makes: its first byte chooses the function.

Beside the sanitizers it is an error when a compiled function says something else than its Python
twin, or raises what it should not.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from rockhopper.broker.hot import _pulls, _sends
from rockhopper.broker.hot.hot_codec import decode_pull, json_frame, pieces, templates
from rockhopper.broker.hot.plain_sends import DeferredSends, common
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.log import _encoding, checking, encoding, selecting, walking
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.protocol import _framing
from rockhopper.protocol.frame import Frame, FrameDecoder, split_in_python
from rockhopper.protocol.names import (
    SCHEDULE_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
)
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

STORE_HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
V6_HOST = bytes(16) + b"\0\0\x2a\x9f"
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
OP_CONSTANTS = encoding.queue_constants(TRANSACTION_OP_HALF_TOPIC, 0)

_encoding.set_fallbacks(
    encoding.encode_plain, encoding.encode_batch, encoding.encode_run, encoding.count_run
)
_sends.set_classes(Run, QueueTail, Traffic)


def frames_of(data: bytes) -> list[Frame]:
    """Frames as they stand in a stream, or one whose header is everything."""
    decoder = FrameDecoder()
    frames = decoder.feed(data)
    return frames or [(data[0] & 1, data[1:], b"body")] if data else []


def take_sends(data: bytes) -> None:
    frames = frames_of(data[1:])
    born_host = STORE_HOST if data[0] & 1 else V6_HOST
    room_end = LOG_OFFSET + 8 * data[0] * data[0]
    taken = _sends.take_sends(frames, 0, SENDABLE, COMMON, born_host, LOG_OFFSET, room_end, NOW_MS)
    if taken is None or isinstance(taken, str):
        return
    count, records, runs, packed_keys, counted, owed, halves = taken
    end = LOG_OFFSET + len(records)
    assert 0 < count <= len(frames)
    assert end <= room_end
    assert max(run.end for run in runs) == end
    assert sum(one[3] for one in counted) == len(records)
    assert sum(run.count for run in runs) == sum(len(run.units[0]) for run in runs) // 20
    assert len(packed_keys) % encoding.INDEX_KEY.size == 0
    for run in runs:
        decode_messages(b"".join(_records_of(records, run.units[0])))
    half_count = sum(messages for traffic, messages, _, _ in counted if traffic is half_traffic)
    assert len(halves or ()) == half_count
    _sends.count_up(counted)
    decoder = FrameDecoder()
    for answers, log_offset, _ in owed:
        assert LOG_OFFSET <= log_offset < end
        assert decoder.feed(answers)
        assert decoder.error is None
        assert not decoder.pending_bytes


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
    limits = PULL_PIECES, (4, 600, 1 << 20, 8), 1 << 16, log, 0, len(log), 1 << 62, True
    *nothing, key, misplaced, _, parked = _pulls.take_pulls(frames, 0, {}, *limits)
    assert (nothing, misplaced, parked) == ([0, None, [], []], None, [])
    if key is None:
        return
    request = decode_pull(header)
    pull, expected = request.extFields, None
    if low <= pull.queueOffset < low + count:
        count_max = min(max(1, pull.maxMsgNums), 4, low + count - pull.queueOffset)
        place = (pull.queueOffset - low) * 20
        wanted = units[place : place + 20 * count_max], count_max, 600, limits[3:6], limits[6]
        expected = checking.gather_sound(b"\6orders", pull.queueId, pull.queueOffset, *wanted)
    entry: Any = queue, None, None, TOPIC, "group", [], None
    if data[0] & 8:
        # Nothing stands in the newest files, and all of it in the noted ones.
        entry[5].extend((units, low * 20, log, 0, len(log)))
        queue.mapping, limits = b"", (*limits[:3], log, len(log), len(log), *limits[6:])
    made = _pulls.take_pulls(frames, 0, {key: entry}, *limits)
    taken, answers, counted, commits, _, _, _, parked = made
    if 0 < count == pull.queueOffset - low and pull.sysFlag & 2:
        waiting = [entry, pull.queueOffset, pull.suspendTimeoutMillis]
        assert [list(one[1:]) for one in parked] == [waiting] * 2
        assert (taken, answers, counted) == (2, None, [])
        return
    assert parked == []
    if expected is None:
        assert (taken, answers, counted, commits) == (0, None, [], [])
        return
    found, records = expected
    values = 0, pull.queueOffset + found, low, low + count, request.opaque, "FOUND"
    answer = json_frame(_ANSWERS.pulled, values, len(records)) + records
    assert (taken, answers) == (2, answer * 2)
    assert counted == [(entry, 2, 2 * found, 2 * len(records), pull.queueOffset + found, 0)]
    commit = TOPIC, "group", pull.queueId, pull.commitOffset
    assert commits == [commit] * (2 * (pull.sysFlag & 1 and pull.commitOffset >= 0))


def walk_plain(data: bytes) -> None:
    check_crc = bool(data[0] & 1)
    log = bytes(data[0] >> 4) + data[1:]
    arguments = log, data[0] >> 4, len(log), 0, check_crc
    assert _encoding.walk_plain(*arguments) == walking.walk_plain(*arguments)
    for end in (len(log), len(log) - data[0] % (len(log) + 1)):
        part = log, data[0] >> 4, end
        assert _encoding.whole_end(*part) == walking.whole_end(*part)


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
    size = encoding.TIMED_KEY.size
    split = min(data[0] & 3, (len(data) - 1) // size) * size + 1
    keys, rest = data[1:split], data[split:]
    # A hash is never negative.
    keys = b"".join(
        encoding.TIMED_KEY.pack(key_hash & 0x7FFFFFFF, *others)
        for key_hash, *others in encoding.TIMED_KEY.iter_unpack(keys)
    )
    files: list[Any] = [bytearray(rest.ljust(40 + 4 * 5 + 20 * 8, b"\0")) for _ in range(2)]
    used = _encoding.put_timed_entries(files[0], 5, 60, 2, NOW_MS, memoryview(keys))
    assert used == encoding.put_timed_entries(files[1], 5, 60, 2, NOW_MS, memoryview(keys))
    assert files[0] == files[1]


def split_frames(data: bytes) -> None:
    for limits in ((1 << 24, 1 << 18), (data[0], data[0] >> 1)):
        assert _framing.split_frames(data[1:], *limits) == split_in_python(data[1:], *limits)


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
)


def run(data: bytes) -> None:
    """Do one of them with *data*."""
    if len(data) > 1:
        TARGETS[data[0] % len(TARGETS)](data[1:])
