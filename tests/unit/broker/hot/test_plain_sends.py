"""take_sends: which sends compiled code takes, where it stops, and what it says of them.

That what it takes is served as the general path serves it is tests/property's.
"""

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.hot.hot_codec import templates
from rockhopper.broker.hot.plain_sends import (
    SENDS_PER_CALL_MAX,
    Common,
    DeferredSends,
    Sendable,
    Signers,
    Taken,
    common,
    count_up,
    make_key,
    take_sends,
)
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC
from rockhopper.protocol.properties import join_properties
from rockhopper.protocol.signing import Credentials
from rockhopper.protocol.store.message_codec import (
    decode_message,
    decode_messages,
    encode_batch,
)
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from tests.support.hot_broker import HotBroker
from tests.support.send_requests import Asked, sign_asked

pytestmark = pytest.mark.skipif(take_sends is None, reason="it is not compiled")

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
NO_IDS = b"", 0
IDS = b"7F0000010001CAFED00D00000001", 0xFFFE
EXT = {
    "a": "group",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "17",
    "h": "9",
    "i": "UNIQ_KEY\x01AB\x02KEYS\x01k\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}
V1 = {
    "producerGroup": "group",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "17",
    "flag": "9",
    "properties": EXT["i"],
    "maxReconsumeTimes": "3",
}
OPENED: Any = object()
JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ


def header(ext: Mapping[str, object] = EXT, code: int = 310, **top: object) -> bytes:
    parts = {"code": code, "flag": 0, "language": "JAVA", "opaque": 5, "extFields": ext} | top
    return json.dumps(parts, separators=(",", ":")).encode()


def binary(ext: Mapping[str, str] = EXT, code: int = 310, flag: int = 0) -> bytes:
    command = Command(code, 5, flag, ext=dict(ext), serialize_type=BINARY)
    ((_, head, _),) = FrameDecoder().feed(encode_command(command))
    return head


class Pass:
    """A broker's part of one pass."""

    def __init__(self, body_size_bytes_max: int = 1000, *, takes_halves: bool = True) -> None:
        self.half_traffic = Traffic()
        self.tails = [QueueTail("orders", number, 40, is_batch=False) for number in range(3)]
        for tail in self.tails:
            tail.consume_queue = OPENED
        self.traffic = Traffic()
        self.sendable = Sendable()
        self.sendable["orders"] = (self.tails, self.traffic)
        made = templates("DefaultRegion", HOST, trace_on=True)
        delayed = [QueueTail(SCHEDULE_TOPIC, level, 70, is_batch=False) for level in range(3)]
        half = QueueTail(TRANSACTION_HALF_TOPIC, 0, 90, is_batch=False)
        for tail in (*delayed[:2], half):
            tail.consume_queue = OPENED
        waiting = DeferredSends(
            {(tail.topic, tail.queue_id): tail for tail in (*delayed, half)},
            (1000, 5000, 7000, 9000),
            SCHEDULE_TOPIC,
            TRANSACTION_HALF_TOPIC if takes_halves else None,
            self.half_traffic,
        )
        suffix = b"CLUSTER\x01c\x02"
        self.common: Common = common(made, HOST, suffix, body_size_bytes_max, waiting)

    def take(self, *frames: Frame, room_end: int = 1 << 30) -> Taken | None:
        """Take the sends of one connection; return None if there are none."""
        taken = self.take_fronts([list(frames)], room_end=room_end)
        assert len(taken.counts) == 1
        return taken if taken.counts[0] else None

    def take_fronts(
        self,
        fronts: list[list[Frame]],
        *,
        hosts: Sequence[bytes] = (HOST,),
        count_max: int = SENDS_PER_CALL_MAX,
        room_end: int = 1 << 30,
        sendable: Sendable | None = None,
        signers: Signers | None = None,
        ids: tuple[bytes, int] = NO_IDS,
    ) -> Taken:
        """Take the sends of several connections."""
        assert take_sends is not None
        if sendable is None:
            sendable = self.sendable
        asked: list[Any] = [
            (n, frames, hosts[n % len(hosts)], sendable, signers) for n, frames in enumerate(fronts)
        ]
        place = 4096, room_end, 1_700_000_000_000
        return Taken(*take_sends(asked, count_max, self.common, *ids, *place))


def json_send(
    ext: Mapping[str, object] = EXT, body: bytes = b"hello", code: int = 310, **top: object
) -> Frame:
    return JSON, header(ext, code, **top), body


AL = Credentials("al", "the secret of al")


def signed_send(
    ext: Mapping[str, object] = EXT,
    body: bytes = b"hello",
    code: int = 310,
    by: Credentials = AL,
    kind: int = JSON,
) -> Frame:
    asked = sign_asked(Asked(code, dict(ext), body), by)
    head = header(asked.ext, code) if kind == JSON else binary(asked.ext, code)
    return kind, head, body


def signers_of(sendable: Sendable, *users: Credentials) -> Signers:
    assert make_key is not None
    return {user.access_key: (make_key(user.secret.encode()), sendable) for user in users}


def answers(frames: bytes) -> list[Command]:
    return [decode_header(kind, head, body) for kind, head, body in FrameDecoder().feed(frames)]


@pytest.mark.parametrize(
    "frame",
    [
        json_send(),
        (BINARY, binary(), b"hello"),
        (JSON, header(V1, code=10), b"hello"),
        (BINARY, binary(V1, code=10), b"hello"),
    ],
)
def test_a_send_is_stored_and_answered(frame: Frame) -> None:
    one = Pass()
    taken = one.take(frame)
    assert taken is not None
    records, runs = taken.records, taken.runs
    message = decode_message(records)
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 1, 40)
    assert (message.body, message.flag, message.born_time_ms) == (b"hello", 9, 17)
    assert message.properties == {"UNIQ_KEY": "AB", "KEYS": "k", "CLUSTER": "c"}
    end = 4096 + len(records)
    unit = CONSUME_QUEUE_UNIT.pack(4096, len(records), 0)
    assert (taken.counts, taken.sends, taken.batches, taken.unknown) == ([1], 1, 0, [])
    assert [msgspec.structs.astuple(run) for run in runs] == [
        (one.tails[1], 4096, end, 40, 1, [unit], 0)
    ]
    assert [offset for _, offset in INDEX_KEY.iter_unpack(taken.packed_keys)] == [4096, 4096]
    assert taken.traffic == [(one.traffic, 1, 1, len(records))]
    ((number, frames, waits),) = taken.owed
    assert (cast(Any, number), waits) == (0, True)
    (answer,) = answers(frames)
    assert (answer.code, answer.opaque, answer.serialize_type) == (0, 5, frame[0])
    assert answer.ext == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": "7F00000100002A9F0000000000001000",
        "queueId": "1",
        "queueOffset": "40",
        "transactionId": "AB",
    }
    assert one.tails[1].next_offset == 40


def test_messages_of_a_queue_make_one_run_whatever_stands_between_them() -> None:
    one = Pass()
    taken = one.take(*(json_send(EXT | {"e": queue}) for queue in "1210"))
    assert taken is not None
    assert [(run.tail.queue_id, run.first_offset, run.count) for run in taken.runs] == [
        (1, 40, 2),
        (2, 40, 1),
        (0, 40, 1),
    ]
    offsets = [
        [unit[0] for unit in CONSUME_QUEUE_UNIT.iter_unpack(run.units[0])] for run in taken.runs
    ]
    size = len(taken.records) // 4
    second = decode_message(taken.records[2 * size : 3 * size])
    assert (second.queue_id, second.queue_offset, second.commit_log_offset) == (
        1,
        41,
        offsets[0][1],
    )
    assert offsets == [[4096, 4096 + 2 * size], [4096 + size], [4096 + 3 * size]]
    assert [(run.start, run.end) for run in taken.runs] == [
        (4096, 4096 + 3 * size),
        (4096 + size, 4096 + 2 * size),
        (4096 + 3 * size, 4096 + 4 * size),
    ]
    keys = [offset for _, offset in INDEX_KEY.iter_unpack(taken.packed_keys)]
    assert keys == sorted(keys)


def test_so_many_queues_have_their_messages_in_one_pass() -> None:
    one = Pass()
    tails = [[QueueTail(f"t{n}", 0, 0, is_batch=False)] for n in range(400)]
    sendable = Sendable()
    for n, (tail,) in enumerate(tails):
        sendable[f"t{n}"] = [tail], Traffic()
        tail.consume_queue = OPENED
    later = EXT["i"] + "DELAY\x011\x02"
    for properties in (EXT["i"], later):
        frames = [json_send(EXT | {"b": f"t{n}", "e": "0", "i": properties}) for n in range(400)]
        taken = one.take_fronts([frames], sendable=sendable)
        assert taken.counts == [384]
        assert len(taken.traffic) == 384
        assert len(taken.runs) == (1 if properties == later else 384)
        assert one.take_fronts([frames[384:]], sendable=sendable).counts == [16]


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_a_batch_is_answered_by_all_its_ids(kind: int) -> None:
    body = encode_batch([(number, b"x" * number, b"") for number in range(3)])
    ext = EXT | {"m": "true", "i": "WAIT\x01false\x02"}
    one = Pass()
    head = header(ext, code=320) if kind == JSON else binary(ext, code=320)
    taken = one.take((kind, head, body))
    assert taken is not None
    assert (taken.counts, taken.sends, taken.batches) == ([1], 0, 1)
    assert (taken.runs[0].count, taken.traffic[0][1:3]) == (3, (3, 1))
    ((_, frames, waits),) = taken.owed
    (answer,) = answers(frames)
    assert not waits
    assert answer.ext is not None
    units = list(CONSUME_QUEUE_UNIT.iter_unpack(taken.runs[0].units[0]))
    assert answer.ext["msgId"] == ",".join(f"7F00000100002A9F{unit[0]:016X}" for unit in units)
    assert (answer.ext["queueOffset"], "transactionId" in answer.ext) == ("40", False)


def test_answers_that_wait_and_those_that_do_not_are_kept_apart() -> None:
    unwaiting = EXT | {"i": EXT["i"] + "WAIT\x01false\x02"}
    taken = Pass().take(json_send(), json_send(), json_send(unwaiting), json_send())
    assert taken is not None
    sizes = [len(answers(frames)) for _, frames, _ in taken.owed]
    assert (sizes, [one[2] for one in taken.owed]) == ([2, 1, 1], [True, False, True])


def test_a_oneway_send_is_stored_and_not_answered() -> None:
    taken = Pass().take(json_send(flag=2))
    assert taken is not None
    assert (taken.counts, taken.owed) == ([1], [])


PULL: Frame = (JSON, b'{"code":11,"opaque":1}', b"")


def test_it_stops_in_front_of_what_it_does_not_know() -> None:
    one = Pass()
    taken = one.take(json_send(), json_send(), PULL, json_send())
    assert taken is not None
    assert taken.counts == [2]
    assert one.take(PULL, json_send()) is None
    assert one.take() is None


def test_each_connection_has_its_host_its_answers_and_its_end() -> None:
    hosts = [b"\x0a\0\0%c\0\0\0\7" % n for n in range(4)]
    odd = json_send(EXT | {"f": "4"})
    fronts = [
        [json_send(body=b"a", opaque=1), json_send(body=b"b", opaque=2)],
        [odd, json_send(body=b"never")],
        [json_send(body=b"c", opaque=3), PULL, json_send(body=b"never")],
        [json_send(body=b"d", flag=2), json_send(body=b"e", opaque=4), odd],
    ]
    one = Pass()
    taken = one.take_fronts(fronts, hosts=hosts)
    assert (taken.counts, taken.sends) == ([2, 0, 1, 2], 5)
    (run,) = taken.runs
    units = list(CONSUME_QUEUE_UNIT.iter_unpack(run.units[0]))
    stored = [decode_message(taken.records[at - 4096 :][:size]) for at, size, _ in units]
    assert [(message.body, message.born_host, message.queue_offset) for message in stored] == [
        (b"a", "10.0.0.0", 40),
        (b"b", "10.0.0.0", 41),
        (b"c", "10.0.0.2", 42),
        (b"d", "10.0.0.3", 43),
        (b"e", "10.0.0.3", 44),
    ]
    owed = [
        (cast(Any, number), [answer.opaque for answer in answers(frames)])
        for number, frames, _ in taken.owed
    ]
    assert owed == [(0, [1, 2]), (2, [3]), (3, [4])]
    assert taken.traffic == [(one.traffic, 5, 5, len(taken.records))]


def test_a_connection_with_a_long_host_does_not_change_the_records_of_others() -> None:
    hosts = [HOST, bytes(15) + b"\1\0\0\0\7", HOST]
    taken = Pass().take_fronts([[json_send(body=b"%d" % n)] for n in range(3)], hosts=hosts)
    (run,) = taken.runs
    units = CONSUME_QUEUE_UNIT.iter_unpack(run.units[0])
    stored = [decode_message(taken.records[at - 4096 :][:size]) for at, size, _ in units]
    assert [message.born_host for message in stored] == ["127.0.0.1", "::1", "127.0.0.1"]
    assert {message.store_host for message in stored} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("count_max", "counts"), [(0, []), (1, [1]), (2, [2]), (3, [2, 1]), (5, [2, 3]), (6, [2, 3, 1])]
)
def test_it_takes_so_many_of_all_together_and_says_nothing_of_the_others(
    count_max: int, counts: list[int]
) -> None:
    fronts = [[json_send()] * 2, [json_send()] * 3, [json_send()] * 4]
    taken = Pass().take_fronts(fronts, count_max=count_max)
    assert (taken.counts, taken.sends, len(taken.owed)) == (counts, count_max, len(counts))


def test_connections_may_send_to_different_topics() -> None:
    assert take_sends is not None
    one, traffic = Pass(), Traffic()
    other = QueueTail("bills", 0, 7, is_batch=False)
    other.consume_queue = OPENED
    orders, bills = one.sendable, Sendable()
    bills["bills"] = [other], traffic
    bill, order = json_send(EXT | {"b": "bills", "e": "0"}), json_send()
    fronts: list[Any] = [
        (0, [order, bill], HOST, orders, None),
        (1, [order, bill], HOST, bills, None),
        (2, [bill, order], HOST, bills, None),
        (3, [order], HOST, orders, None),
    ]
    taken = Taken(*take_sends(fronts, 9, one.common, *NO_IDS, 4096, 1 << 30, 1_700_000_000_000))
    assert taken.counts == [1, 0, 1, 1]
    assert [(id(where), name) for where, name in taken.unknown] == [
        (id(orders), "bills"),
        (id(bills), "orders"),
        (id(bills), "orders"),
    ]
    assert [(run.tail.topic, run.count) for run in taken.runs] == [("orders", 2), ("bills", 1)]


@pytest.mark.parametrize("kind", [JSON, BINARY])
@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("size_bytes", [0, 1, 63, 64, 65, 1000])
def test_signed_sends_are_taken_of_those_who_may_sign(
    kind: int, code: int, size_bytes: int
) -> None:
    one = Pass()
    frame = signed_send(V1 if code == 10 else EXT, b"x" * size_bytes, code, kind=kind)
    taken = one.take_fronts([[frame]], signers=signers_of(one.sendable, AL))
    assert taken.counts == [1]
    assert taken.records == one.take_fronts([[frame]]).records


@given(secret=st.text(st.characters(codec="utf-8"), max_size=200), body=st.binary(max_size=300))
def test_a_key_is_as_good_as_its_secret(secret: str, body: bytes) -> None:
    one, user = Pass(), Credentials("al", secret)
    signers = signers_of(one.sendable, user)
    assert one.take_fronts([[signed_send(body=body, by=user)]], signers=signers).counts == [1]
    wrong = Credentials("al", secret + "x")
    assert one.take_fronts([[signed_send(body=body, by=wrong)]], signers=signers).counts == [0]


def changed(ext: Mapping[str, object], body: bytes = b"hello") -> Frame:
    """Return a signed send with fields and body as they were changed after it was signed."""
    asked = sign_asked(Asked(310, dict(EXT), b"hello"), AL)
    merged = {name: value for name, value in {**asked.ext, **ext}.items() if value is not None}
    return JSON, header(merged), body


SIGNED = sign_asked(Asked(310, dict(EXT), b"hello"), AL).ext
SIGNATURE = str(SIGNED["Signature"])


@pytest.mark.parametrize(
    "frame",
    [
        json_send(),
        signed_send(by=Credentials("al", "another secret")),
        signed_send(by=Credentials("bo", AL.secret)),
        changed({}, b"hallo"),
        changed({"e": "2"}),
        changed({"SecurityToken": "more"}),
        changed({"j": None}),
        changed({"Signature": None}),
        changed({"AccessKey": None}),
        changed({"AccessKey": "bo"}),
        changed({"Signature": ""}),
        changed({"Signature": SIGNATURE[:-1]}),
        changed({"Signature": SIGNATURE + "="}),
        changed({"Signature": "x" + SIGNATURE[1:]}),
        changed({"Signature": SIGNATURE[:-2] + "x="}),
        changed({"Signature": SIGNATURE[:-1] + "A"}),
        signed_send(EXT | {"RhVisitor": "10.0.0.9"}),
        signed_send(EXT | {"_UNIQUE_KEY_QUERY": "true"}),
        signed_send(EXT | {f"more{n}": "x" for n in range(64)}),
        (JSON, header(SIGNED).replace(b'"a":', b'"n":"x","n":"x","a":'), b"hello"),
        (JSON, header(SIGNED).replace(b'"Acc', b'"AccessKey":"al","Acc'), b"hello"),
        (JSON, header(SIGNED).replace(b'"Sig', b'"Signature":"x","Sig'), b"hello"),
        (JSON, header(SIGNED).replace(b'"al"', b'"\\u0061l"'), b"hello"),
        (JSON, header(SIGNED).replace(b'"al"', b"null"), b"hello"),
        (JSON, header(SIGNED).replace(b'"al"', b'"\xc3\xa4l"'), b"hello"),
    ],
)
def test_any_other_signature_is_left_to_python(frame: Frame) -> None:
    one = Pass()
    signers = signers_of(one.sendable, AL)
    taken = one.take_fronts([[frame, signed_send()]], signers=signers)
    assert (taken.counts, taken.records, taken.unknown) == ([0], b"", [])
    assert one.take_fronts([[signed_send(), frame]], signers=signers).counts == [1]


def test_values_are_signed_in_the_order_of_their_names_and_as_they_are_meant() -> None:
    one = Pass()
    bare = {"e": 1, "f": 0, "g": 17, "h": 9, "k": False, "i": EXT["i"] + "ключ\x01Ж\x02"}
    frame = signed_send({"zz": "1", "z": "2", "SecurityToken": "t"} | EXT | bare)
    taken = one.take_fronts([[frame]], signers=signers_of(one.sendable, AL))
    assert taken.counts == [1]


def test_users_of_one_connection_send_to_their_own_topics() -> None:
    one, bo = Pass(), Credentials("bo", "the secret of bo")
    empty = Sendable()
    signers = signers_of(one.sendable, AL) | signers_of(empty, bo)
    frames = [signed_send(), signed_send(), signed_send(by=bo), signed_send()]
    taken = one.take_fronts([frames, [signed_send()]], signers=signers)
    assert taken.counts == [2, 1]
    ((where, name),) = taken.unknown
    assert (where is empty, name) == (True, "orders")


def test_a_forged_request_makes_no_topic_known() -> None:
    one = Pass()
    empty = Sendable()
    forged = signed_send(by=Credentials("al", "another secret"))
    assert one.take_fronts([[forged]], signers=signers_of(empty, AL)).unknown == []


def test_it_stops_in_front_of_what_needs_another_file() -> None:
    one = Pass()
    single = one.take(json_send())
    assert single is not None
    size = len(single.records)
    for room, count in ((3 * size, 3), (3 * size - 1, 2)):
        taken = one.take(*[json_send()] * 4, room_end=4096 + room)
        assert taken is not None
        assert taken.counts == [count]
    assert one.take(json_send(), room_end=4096 + size - 1) is None
    large, small = json_send(body=bytes(100)), json_send()
    taken = one.take_fronts([[large, small], [small]], room_end=4096 + 90 + size)
    assert (taken.counts, len(taken.records)) == ([0, 1], size)
    batch: Frame = (JSON, header(EXT | {"m": "true"}, 320), encode_batch([(0, b"x", b"")] * 2))
    whole = one.take(batch)
    assert whole is not None
    assert one.take(batch, room_end=4096 + len(whole.records) - 1) is None
    assert one.take(batch, room_end=4096 + len(whole.records)) is not None


def test_a_queue_whose_first_message_was_left_begins_where_its_next_one_is() -> None:
    one = Pass()
    small = one.take(json_send())
    assert small is not None
    size = len(small.records)
    large = json_send(EXT | {"e": "2"}, bytes(500))
    fronts = [[large], [json_send()], [json_send(EXT | {"e": "2"})]]
    taken = one.take_fronts(fronts, room_end=4096 + 2 * size)
    assert taken.counts == [0, 1, 1]
    assert [(run.tail.queue_id, run.start, run.end) for run in taken.runs] == [
        (2, 4096 + size, 4096 + 2 * size),
        (1, 4096, 4096 + size),
    ]
    assert [(run.first_offset, run.count) for run in taken.runs] == [(40, 1), (40, 1)]
    left = one.take_fronts([[large], [json_send()]], room_end=4096 + size)
    assert [run.tail.queue_id for run in left.runs] == [1]


def test_a_delayed_message_waits_in_the_queue_of_its_level() -> None:
    one = Pass()
    delayed = json_send(EXT | {"i": "DELAY\x012\x02UNIQ_KEY\x01AB\x02TAGS\x01red\x02"})
    taken = one.take(json_send(), delayed, json_send())
    assert taken is not None
    records = taken.records
    (plain, waiting) = taken.runs
    assert (taken.counts, plain.count, waiting.count, taken.halves) == ([3], 2, 1, None)
    message = decode_message(records[waiting.start - 4096 :])
    assert (message.topic, message.queue_id, message.queue_offset) == (SCHEDULE_TOPIC, 1, 70)
    assert list(message.properties.items())[-3:] == [
        ("CLUSTER", "c"),
        ("REAL_TOPIC", "orders"),
        ("REAL_QID", "1"),
    ]
    assert CONSUME_QUEUE_UNIT.unpack(waiting.units[0])[2] == 1_700_000_000_000 + 5000
    assert taken.traffic == [(one.traffic, 3, 3, len(records))]
    told = answers(taken.owed[0][1])[1].ext
    assert told is not None
    assert (told["queueId"], told["queueOffset"]) == ("1", "70")


def test_a_half_message_waits_aside_and_is_told_of() -> None:
    one = Pass()
    text = "TRAN_MSG\x01true\x02PGROUP\x01senders\x02UNIQ_KEY\x01AB\x02"
    half = json_send(EXT | {"i": text, "f": "5", "e": "2"})
    taken = one.take(json_send(), half)
    assert taken is not None
    offset = taken.runs[1].start
    message = decode_message(taken.records[offset - 4096 :])
    assert (message.topic, message.queue_id, message.queue_offset) == (
        TRANSACTION_HALF_TOPIC,
        0,
        90,
    )
    assert message.sys_flag == 1
    assert list(message.properties.items())[-4:] == [
        ("CLUSTER", "c"),
        ("__transactionId__", "AB"),
        ("REAL_TOPIC", "orders"),
        ("REAL_QID", "2"),
    ]
    assert taken.halves == [(90, offset, "senders")]
    assert [(traffic, messages) for traffic, messages, _, _ in taken.traffic] == [
        (one.traffic, 1),
        (one.half_traffic, 1),
    ]
    told = answers(taken.owed[0][1])[1].ext
    assert told is not None
    assert (told["queueId"], told["queueOffset"]) == ("2", "90")
    assert Pass(takes_halves=False).take(half) is None


@pytest.mark.parametrize("kind", ["DELAY\x012\x02", "TRAN_MSG\x01true\x02PGROUP\x01senders\x02"])
@pytest.mark.parametrize("end", ["", "\x02"])
def test_waiting_for_the_disk_is_not_stored(kind: str, end: str) -> None:
    text = f"{kind}UNIQ_KEY\x01AB\x02WAIT\x01true{end}"
    taken = Pass().take(json_send(EXT | {"i": text}))
    assert taken is not None
    (stored,) = decode_messages(taken.records)
    assert "WAIT" not in stored.properties
    assert stored.properties["UNIQ_KEY"] == "AB"
    assert stored.properties["CLUSTER"] == "c"


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in EXT.items() if name not in names}


USUAL = header()
TAKEN_AS_WELL: list[bytes] = [
    header(EXT | {"e": 1, "g": 17, "m": False, "k": True}),
    header(without("i") | {"i": EXT["i"] + "é\x01ü\x02"}),
    USUAL.replace(b"AB", b"A\\u0042"),
    USUAL.replace(b"KEYS", b"a\\u0001\\u00e9\\u20ac\\n\\/\\\\\\u0002KEYS"),
    header(EXT | {"zz": "ignored", "n": "broker-a"}),
    header(without("j", "k", "m")),
    header(remark=None, version=479, serializeTypeCurrentRPC="JSON", x=True),
    header(EXT | {"g": "-1", "h": "-7"}),
]


@pytest.mark.parametrize("head", TAKEN_AS_WELL)
def test_what_clients_write_otherwise_is_taken(head: bytes) -> None:
    taken = Pass().take((JSON, head, b""))
    assert taken is not None


FOR_PYTHON: list[bytes] = [
    b"",
    b"{",
    b'{"code":',
    b'{"code":310',
    b'{"code":310}',
    header(code=311),
    header(code=3100),
    USUAL + b" ",
    USUAL[:-1],
    USUAL.replace(b":5", b":5 "),
    USUAL.replace(b'"opaque":5', b'"opaque":05'),
    USUAL.replace(b'"opaque":5', b'"opaque":-0'),
    USUAL.replace(b'"opaque":5', b'"opaque":5.0'),
    USUAL.replace(b'"opaque":5', b'"opaque":2147483648'),
    USUAL.replace(b'"opaque":5', b'"opaque":"5"'),
    USUAL.replace(b'"opaque":5,', b""),
    USUAL.replace(b'"opaque":5', b'"opaque":5,"opaque":6'),
    USUAL.replace(b'"language":"JAVA"', b'"code":320'),
    USUAL.replace(b'"language":"JAVA"', b'"language":{}'),
    USUAL.replace(b'"language":"JAVA"', b'"language":nil'),
    USUAL.replace(b'"JAVA"', '"JÄVA"'.encode()),
    USUAL.replace(b'"JAVA"', b'"J\\u0041VA"'),
    USUAL.replace(b'"JAVA"', b'"J\tVA"'),
    header(flag=1),
    header(flag=3),
    header(extFields=None),
    header({}),
    header(EXT | {"b": "unknown"}),
    header(EXT | {"e": "3"}),
    header(EXT | {"e": "-1"}),
    header(EXT | {"e": ""}),
    header(EXT | {"e": " 1"}),
    header(EXT | {"e": "01"}),
    header(EXT | {"e": "+1"}),
    header(EXT | {"e": None}),
    header(EXT | {"e": "1" * 19}),
    header(EXT | {"f": "4"}),
    header(EXT | {"f": "128"}),
    header(EXT | {"h": "2147483648"}),
    header(EXT | {"m": "true"}),
    header(EXT | {"m": "FALSE"}),
    header(EXT | {"rh": "1"}),
    header(EXT | {"b": 7}),
    header(EXT | {"a": None}),
    header(without("a")),
    header(without("g")),
    header(without("i")),
    USUAL.replace(b'"a":"group"', b'"a":"group","a":"group"'),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x015\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x010\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x01x\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x014\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x013\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x011\x02a\x01b\x02a\x01b\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x011\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02DELAY\x011\x02", "f": "4"}),
    header(EXT | {"i": "DELAY\x011\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TRAN_MSG\x01true\x02", "f": "4"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02", "f": "8"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02", "j": "1"}),
    header(EXT | {"i": "UNIQ_KEY\x01A B\x02"}),
    header(EXT | {"i": "UNIQ_KEY\x01AB\x02TAGS\x01ü\x02"}),
    header(EXT | {"i": EXT["i"] + "a\x01😀\x02"}),
    USUAL.replace(b"KEYS", b"\xff\xfe"),
    USUAL.replace(b"KEYS", b"\xed\xa0\x80"),
    USUAL.replace(b"KEYS", b"\xc0\x80"),
    USUAL.replace(b"KEYS", b"\xf4\x90\x80\x80"),
    USUAL.replace(b"KEYS", b"\xe0\x80\x80"),
    USUAL.replace(b"KEYS", b"\xf0\x80\x80\x80"),
    USUAL.replace(b"KEYS", b"\xe2\x82"),
    USUAL.replace(b"KEYS", b"\xe2\x82("),
    USUAL.replace(b"KEYS", b"\xf8\x88\x80\x80\x80"),
    USUAL.replace(b"AB", b"A\\x42"),
    USUAL.replace(b"AB", b"A\\u00"),
    USUAL.replace(b"AB", b"A\nB"),
    USUAL.replace(b"AB\\u0002KEYS\\u0001k\\u0002", b"AB\\"),
    header(V1 | {"unknown": "x"}, code=10),
    header(V1 | {"batch": "true"}, code=10),
    header(V1 | {"maxReconsumeTimes": "x"}, code=10),
    header({name: value for name, value in V1.items() if name != "defaultTopic"}, code=10),
]


@pytest.mark.parametrize("head", FOR_PYTHON)
def test_whatever_is_a_little_unusual_is_left_to_python(head: bytes) -> None:
    assert Pass().take((JSON, head, b"")) is None


BINARY_HEAD = binary()
FIELDS_AT = 21


@pytest.mark.parametrize(
    "head",
    [
        b"",
        BINARY_HEAD[:20],
        BINARY_HEAD[:-1],
        BINARY_HEAD + b"\0",
        b"\0\x0b" + BINARY_HEAD[2:],
        BINARY_HEAD[:13] + b"\0\0\0\1x" + BINARY_HEAD[17:],
        BINARY_HEAD[:FIELDS_AT] + b"\xff\xff" + BINARY_HEAD[FIELDS_AT + 2 :],
        BINARY_HEAD[: FIELDS_AT + 3] + b"\xff\xff\xff\xff" + BINARY_HEAD[FIELDS_AT + 7 :],
        BINARY_HEAD.replace(b"AB", b"A\xff"),
        BINARY_HEAD.replace(b"group", b"gr\xc3\xbcp"),
        binary(EXT | {f"x{number}": "y" for number in range(64)}),
        binary(flag=1),
    ],
)
def test_a_binary_header_is_left_to_python_likewise(head: bytes) -> None:
    assert Pass().take((BINARY, head, b"")) is None


@pytest.mark.parametrize("kind", [2, 7, 1 << 70])
def test_other_serialisations_are_left_to_python(kind: int) -> None:
    assert Pass().take((kind, header(), b"")) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 10,
        encode_batch([(0, b"x", b"DELAY\x011\x02")]),
        encode_batch([(0, b"", b"")])[:-1],
    ],
)
def test_a_batch_that_is_not_plain_is_left_to_python(body: bytes) -> None:
    one = Pass()
    assert one.take((JSON, header(EXT | {"m": "true"}, 320), body)) is None
    delayed = EXT | {"m": "true", "i": "DELAY\x011\x02"}
    assert one.take((JSON, header(delayed, 320), encode_batch([(0, b"x", b"")]))) is None


@pytest.mark.parametrize("code", [10, 310])
def test_the_topics_are_named_that_nobody_admitted(code: int) -> None:
    def send_to(topic: str, **wrong: str) -> Frame:
        ext = V1 | {"topic": topic} if code == 10 else EXT | {"b": topic}
        return json_send(ext | wrong, code=code)

    one = Pass()
    fronts = [[send_to("others"), json_send()], [json_send(), send_to("more")], [json_send()]]
    taken = one.take_fronts([*fronts, [send_to("others"), send_to("never")]])
    assert taken.counts == [0, 1, 1, 0]
    assert [name for _, name in taken.unknown] == ["others", "more", "others"]
    wrong = {"sysFlag": "x"} if code == 10 else {"f": "x"}
    assert one.take_fronts([[send_to("others", **wrong)]]).unknown == []


ODD = ["a\x01\x02", "junk\x02", "\x01b\x02", "a\x01b\x02a\x01c\x02", "a\x01b\x02\x02"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_odd_properties_are_read_and_written_anew_by_python(odd: str, kind: int) -> None:
    one = Pass()
    for text in (odd + EXT["i"], EXT["i"] + odd):
        long_names = V1 | {"properties": text}
        head = header(long_names, 10) if kind == JSON else binary(long_names, 10)
        assert one.take((kind, head, b"hello")) is None
        short = EXT | {"i": text}
        head = header(short) if kind == JSON else binary(short)
        assert one.take((kind, head, b"hello")) is None


@pytest.mark.parametrize("left_out", [*"abcdefgh"])
def test_a_send_without_a_field_that_it_must_have_is_left_to_python(left_out: str) -> None:
    one, body = Pass(), encode_batch([(0, b"x", b"")])
    ext = {name: text for name, text in EXT.items() if name != left_out}
    assert one.take((JSON, header(ext), b"hello")) is None
    assert one.take((BINARY, binary(ext), b"hello")) is None
    assert one.take((JSON, header(ext | {"m": "true"}, 320), body)) is None
    assert one.take((BINARY, binary(ext | {"m": "true"}, 320), body)) is None
    assert one.take((BINARY, binary(EXT | {"m": "true"}, 320), body)) is not None


def test_what_was_taken_is_counted() -> None:
    assert count_up is not None
    one, other = Traffic(), Traffic()
    one.messages = one.calls = one.bytes = 1 << 40
    count_up([(one, 3, 1, 300), (other, 1, 1, 1 << 33), (one, 1, 1, 100)])
    assert (one.messages, one.calls, one.bytes) == ((1 << 40) + 4, (1 << 40) + 2, (1 << 40) + 400)
    assert (other.messages, other.calls, other.bytes) == (1, 1, 1 << 33)
    for wrong in ([one], [(one, 1, 1)], [(object(), 1, 1, 1)], [(one, 1, "1", 1)]):
        with pytest.raises(TypeError):
            count_up(wrong)  # type: ignore[arg-type]


def test_a_body_that_is_too_large_is_left_to_python() -> None:
    assert Pass(5).take(json_send(body=b"12345")) is not None
    assert Pass(5).take(json_send(body=b"123456")) is None


class Garbage:
    """Something that runs code when it is collected, as finalizers of applications do."""

    def __init__(self, finalize: Callable[[], object]) -> None:
        self.finalize, self.myself = finalize, self

    def __del__(self) -> None:
        self.finalize()


def test_no_finalizer_changes_the_frames_that_are_served() -> None:
    assert take_sends is not None
    one = Pass()
    half = json_send(EXT | {"i": "TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01AB\x02", "f": "4"})
    frames = [half] * 3
    fronts = [(0, frames, HOST, one.sendable, None)]
    args = fronts, 9, one.common, *NO_IDS, 4096, 1 << 30, 1_700_000_000_000
    gc.collect()
    limits = gc.get_threshold()
    gc.disable()
    Garbage(frames.clear)
    try:
        gc.enable()
        gc.set_threshold(1)
        taken = take_sends(*args)
    finally:
        gc.set_threshold(*limits)
    assert Taken(*taken).counts == [3]
    assert gc.isenabled()


def test_classes_that_are_not_right_change_nothing() -> None:
    set_classes: Callable[..., None] = import_module("rockhopper.broker.hot._sends").set_classes

    class Other:
        __slots__ = ("constants", "next_offset")

    with pytest.raises(AttributeError):
        set_classes(Run, Other, Traffic)
    assert Pass().take(json_send()) is not None


def wrong_calls() -> list[Callable[[], object]]:
    take: Callable[..., object] | None = take_sends
    assert take is not None
    assert make_key is not None
    one = Pass()
    frames, sendable = [json_send()], {"orders": (one.tails, one.traffic)}
    good = ([("connection", frames, HOST, sendable, None)], 9, one.common, *NO_IDS, 0, 1 << 30, 1)

    def call(at: int, value: object) -> Callable[[], object]:
        return lambda: take(*good[:at], value, *good[at + 1 :])

    def front(*parts: object) -> Callable[[], object]:
        return call(0, [good[0][0], ("connection", *parts)])

    return [
        take,
        lambda: take(*good, 1),
        call(0, ()),
        call(0, [*good[0], None]),
        front(frames, HOST, sendable),
        front((), HOST, sendable, None),
        front(["frame"], HOST, sendable, None),
        front([(0, "text", b"")], HOST, sendable, None),
        front(frames, "host", sendable, None),
        front(frames, HOST, [], None),
        front(frames, HOST, {"orders": ([], 1, 2)}, None),
        front(frames, HOST, {"orders": ([object()] * 3, one.traffic)}, None),
        front(frames, HOST, sendable, []),
        front([signed_send()], HOST, sendable, {"al": AL.secret}),
        front([signed_send()], HOST, sendable, {"al": (b"key", sendable)}),
        front([signed_send()], HOST, sendable, {"al": (make_key(AL.secret.encode()), [])}),
        call(1, -1),
        call(1, "0"),
        call(1, SENDS_PER_CALL_MAX + 1),
        call(2, ()),
        call(2, (*one.common[:4], (), *one.common[5:])),
        call(3, "start"),
        call(4, "0"),
        call(5, "0"),
        call(6, 1 << 70),
    ]


@pytest.mark.parametrize("number", range(25))
def test_a_call_that_makes_no_sense_raises(number: int) -> None:
    with pytest.raises((TypeError, OverflowError, AttributeError)):
        wrong_calls()[number]()


@pytest.mark.parametrize("blanks", [" ", "  ", "\t"])
def test_one_blank_after_each_separator_is_read(blanks: str) -> None:
    spread = json.dumps(json.loads(header()), separators=("," + blanks, ":" + blanks)).encode()
    assert (Pass().take((JSON, spread, b"hello")) is not None) == (blanks == " ")


def without_key(properties: str = "") -> Frame:
    return json_send(EXT | {"i": properties})


def test_messages_without_a_key_get_the_next_ids() -> None:
    one = Pass()
    taken = one.take_fronts(
        [[without_key(), without_key("TAGS\x01a"), json_send()], [without_key("WAIT\x01true\x02")]],
        ids=IDS,
    )
    assert taken.counts == [3, 1]
    assert (taken.ids_used, taken.wants_ids) == (3, True)
    start = IDS[0].decode()
    first, second, third = (f"UNIQ_KEY\x01{start}{end}\x02" for end in ("FFFE", "FFFF", "0000"))
    stored = [message.properties for message in decode_messages(taken.records)]
    assert [join_properties(one) for one in stored] == [
        f"{first}CLUSTER\x01c\x02",
        f"TAGS\x01a\x02{second}CLUSTER\x01c\x02",
        join_properties(stored[2]),
        f"{third}CLUSTER\x01c\x02",
    ]
    assert len(taken.packed_keys) == 5 * INDEX_KEY.size


@pytest.mark.parametrize("properties", ["", "KEYS\x01a\x02"])
def test_without_ids_a_message_without_a_key_is_left_to_python(properties: str) -> None:
    one = Pass()
    taken = one.take_fronts([[json_send(), without_key(properties)]])
    assert (taken.counts, taken.ids_used, taken.wants_ids) == ([1], 0, True)


@pytest.mark.parametrize(
    "properties",
    ["DELAY\x013\x02", "UNIQ_KEY\x01\x02", "a\x01\x02", "a\x01b\x02a\x01c\x02", "junk"],
)
def test_ids_are_only_for_regular_messages_that_wait_nowhere(properties: str) -> None:
    taken = Pass().take_fronts([[without_key(properties)]], ids=IDS)
    assert (taken.counts, taken.ids_used) == ([0], 0)


def test_a_broker_assigns_no_key_twice(tmp_path: Path) -> None:
    broker = HotBroker(tmp_path)
    try:
        broker.serve([json_send(EXT | {"i": ""}, opaque=n) for n in range(600)])
        keys = [(answer.ext or {})["transactionId"] for answer, _ in broker.answers()]
    finally:
        broker.close()
    assert len(set(keys)) == 600
    numbers = [int(key[-4:], 16) for key in keys]
    assert numbers == list(range(numbers[0], numbers[0] + 600))


def test_the_first_message_of_a_queue_is_left_to_python() -> None:
    one = Pass()
    one.tails[1].consume_queue = None
    assert one.take(json_send()) is None
