"""Under SYNC_FLUSH no answer promises that something is stored before the disk has it.

Goes through the table of request codes: each either stores something, and is tried here, or is
listed as one that does not. A code that is in neither list fails.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rockhopper.broker.processor_table import build_table
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkPart, encode_sink_body
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.message_ids import offset_message_id
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.features import NAMES, sinks_of
from tests.support.peers import Clock, Peer
from tests.support.raw_peer import until
from tests.support.served_broker import ServedBroker
from tests.support.transactions import (
    COMMIT,
    HOLD_TOPIC,
    ROLLBACK,
    end_fields,
    half_fields,
    half_of,
)

Sample = tuple[Code, dict[str, str], bytes]
PLAIN = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
LONG_NAMES = dict(
    zip(
        "abcdefgh",
        (
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
        ),
        strict=True,
    )
)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    """A broker whose disk confirms nothing until ``flush``."""
    settings = {"flushDiskType": "SYNC_FLUSH", "storeReplyMessageEnable": "true"}
    served = ServedBroker(tmp_path, Clock(), settings)
    served.create_topic("orders")
    served.kernel.scheduled.timers.open()
    yield served
    flush(served)
    await served.close()


def flush(broker: ServedBroker) -> None:
    broker.store.flush_now()


def one(broker: ServedBroker) -> Sample:
    return Code.SEND_MESSAGE, {LONG_NAMES[name]: text for name, text in PLAIN.items()}, b"hello"


def one_v2(broker: ServedBroker) -> Sample:
    return Code.SEND_MESSAGE_V2, PLAIN, b"hello"


def delayed(broker: ServedBroker) -> Sample:
    return Code.SEND_MESSAGE_V2, {**PLAIN, "i": "DELAY\x013\x02"}, b"hello"


def timer(broker: ServedBroker) -> Sample:
    return Code.SEND_MESSAGE_V2, {**PLAIN, "i": "TIMER_DELAY_SEC\x0160\x02"}, b"hello"


def half(broker: ServedBroker) -> Sample:
    return Code.SEND_MESSAGE_V2, half_fields("orders", "U1"), b"hello"


def batch(broker: ServedBroker) -> Sample:
    body = encode_batch([(0, b"%d" % n, b"") for n in range(3)])
    return Code.SEND_BATCH_MESSAGE, {**PLAIN, "m": "true"}, body


def send_back(broker: ServedBroker) -> Sample:
    broker.tables.groups.find_or_create("billing")
    offset = broker.put("orders").commit_log_offset
    ext = {"offset": str(offset), "group": "billing", "delayLevel": "0"}
    return Code.CONSUMER_SEND_MSG_BACK, ext, b""


def dead_letter(broker: ServedBroker) -> Sample:
    code, ext, body = send_back(broker)
    return code, {**ext, "delayLevel": "-1"}, body


def _end(broker: ServedBroker, how: int) -> Sample:
    stored, _ = answered(broker, Command(Code.SEND_MESSAGE_V2, 7, ext=half_fields("orders", "U1")))
    flush(broker)
    (response,) = decoded(stored.written)
    return Code.END_TRANSACTION, end_fields(half_of(response), how), b""


def commit(broker: ServedBroker) -> Sample:
    return _end(broker, COMMIT)


def rollback(broker: ServedBroker) -> Sample:
    return _end(broker, ROLLBACK)


def resume(broker: ServedBroker) -> Sample:
    properties = "REAL_TOPIC\x01orders\x02REAL_QID\x010\x02PGROUP\x01g\x02UNIQ_KEY\x01U1\x02"
    held = broker.put(HOLD_TOPIC, properties=properties)
    message_id = offset_message_id(b"\x7f\0\0\1", 10_911, held.commit_log_offset)
    return Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}, b""


def recall(broker: ServedBroker) -> Sample:
    code, ext, body = timer(broker)
    stored, _ = answered(broker, Command(code, 7, ext=ext, body=body))
    flush(broker)
    (response,) = decoded(stored.written)
    handle = (response.ext or {})["recallHandle"]
    ext = {"producerGroup": "p", "topic": "orders", "recallHandle": handle}
    return Code.RECALL_MESSAGE, ext, b""


def _reply(code: Code, broker: ServedBroker) -> Sample:
    broker.create_topic("DefaultCluster_REPLY_TOPIC", 1)
    ext = {**PLAIN, "b": "DefaultCluster_REPLY_TOPIC", "i": "REPLY_TO_CLIENT\x01asker\x02"}
    return code, ext, b"yes"


def reply(broker: ServedBroker) -> Sample:
    code, ext, body = _reply(Code.SEND_REPLY_MESSAGE, broker)
    long = {LONG_NAMES.get(name, "properties"): text for name, text in ext.items()}
    return code, long, body


def reply_v2(broker: ServedBroker) -> Sample:
    return _reply(Code.SEND_REPLY_MESSAGE_V2, broker)


def sink(broker: ServedBroker) -> Sample:
    body = encode_sink_body([SinkMessage("orders", 0, 0, 1, "", b"row")])
    sinks_of(broker).stage("s", 1, "0", 0, body, 1, {"orders"})
    ext = {"sinkId": "s", "batchId": "1"}
    return Code.SINK_PUBLISH, ext, encode_sink_body([SinkPart("0", 1)])


OF_FEATURES: dict[str, list[Callable[[ServedBroker], Sample]]] = {
    "request_reply": [reply, reply_v2],
    "sinks": [sink],
    "transactions": [half, commit, rollback, resume],
}
STORING: list[Callable[[ServedBroker], Sample]] = [
    one,
    one_v2,
    delayed,
    timer,
    batch,
    send_back,
    dead_letter,
    recall,
    *(sample for name, samples in OF_FEATURES.items() if name in NAMES for sample in samples),
]
# Of the log; what they keep elsewhere (tables, the pop journal) they promise as docs/ says.
STORE_NOTHING = {
    Code.PULL_MESSAGE,
    Code.LITE_PULL_MESSAGE,
    Code.BULK_PULL,
    Code.BULK_PULL_QUEUES,
    Code.QUERY_CONSUMER_OFFSET,
    Code.UPDATE_CONSUMER_OFFSET,
    Code.SEARCH_OFFSET_BY_TIMESTAMP,
    Code.GET_MAX_OFFSET,
    Code.GET_MIN_OFFSET,
    Code.GET_EARLIEST_MSG_STORETIME,
    Code.LOCK_BATCH_MQ,
    Code.UNLOCK_BATCH_MQ,
    Code.HEART_BEAT,
    Code.UNREGISTER_CLIENT,
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.CHECK_CLIENT_CONFIG,
    Code.QUERY_MESSAGE,
    Code.VIEW_MESSAGE_BY_ID,
    Code.QUERY_ASSIGNMENT,
    Code.POP_MESSAGE,
    Code.ACK_MESSAGE,
    Code.BATCH_ACK_MESSAGE,
    Code.PEEK_MESSAGE,
    Code.CHANGE_MESSAGE_INVISIBLETIME,
    Code.NOTIFICATION,
    Code.POLLING_INFO,
    Code.SINK_STAGE,
    Code.SINK_STATUS,
    Code.SINK_PREPARE,
    Code.SINK_DECIDE,
    Code.TOPIC_IDS,
    Code.LOG_HISTORY,
    Code.SINK_ABORT,
    Code.SINK_HOME,
}
# Administrators' codes that put a message into the log.
ADMINISTRATORS_STORE = {Code.RESUME_CHECK_HALF_MESSAGE}


def answered(broker: ServedBroker, command: Command) -> tuple[Peer, bool]:
    """Hand a request in; whether it was answered at once, or in the next turns of the loop."""
    peer = Peer()
    frame = broker.begin(peer, command)
    if frame:
        peer.written.append(frame)
    return peer, bool(frame)


def decoded(frames: list[bytes]) -> list[Command]:
    return [
        decode_header(kind, header, body)
        for kind, header, body in FrameDecoder().feed(b"".join(frames))
    ]


@pytest.mark.parametrize("sample", STORING, ids=lambda sample: str(sample.__name__))
async def test_an_answer_waits_for_the_disk(
    broker: ServedBroker, sample: Callable[[ServedBroker], Sample]
) -> None:
    code, ext, body = sample(broker)
    flush(broker)
    before = broker.store.log.written_offset
    peer, _ = answered(broker, Command(code, 7, ext=ext, body=body))
    for _ in range(200):
        await asyncio.sleep(0)
    await until(lambda: broker.store.log.written_offset > before)
    assert decoded(peer.written) == []

    def is_answered() -> bool:
        # What has been told of the disk may write once more.
        flush(broker)
        return bool(peer.written)

    await until(is_answered)
    (answer,) = decoded(peer.written)
    wanted = ResponseCode.SYSTEM_ERROR if "REPLY" in code.name else ResponseCode.SUCCESS
    assert answer.code == wanted, answer.remark


async def test_every_code_is_known_to_store_something_or_nothing(broker: ServedBroker) -> None:
    storing = {sample(broker)[0] for sample in STORING}
    table = build_table(broker)
    codes = {
        code
        for code, entry in table.items()
        if not entry.is_administration or code in ADMINISTRATORS_STORE
    }
    nothing = {int(code) for code in STORE_NOTHING}
    nothing |= {code & 0xFFFF for code in nothing if code > 0xFFFF and code > 200_000}
    assert codes - storing - nothing == set()
    assert storing & STORE_NOTHING == set()
