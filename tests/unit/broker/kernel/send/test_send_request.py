"""What a send says of waiting; its batches (320), and those that come as one message (10, 310)."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from rockhopper.broker.kernel.send import send_request
from rockhopper.broker.kernel.send.send_request import waits_for_disk
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.files.errors import StoreFailedError
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
    SYS_FLAG_TRANSACTION_PREPARED,
)
from tests.support.direct import pull_fields, send_fields
from tests.support.hot_broker import HotBroker
from tests.support.served_broker import ServedBroker

WRAPPED = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
FIVE = encode_batch([(0, b"%d" % n, b"") for n in range(5)])
LETTERS = dict(zip("abcdefghi", send_fields("orders"), strict=True))


@pytest.fixture(autouse=True)
def topics(broker: ServedBroker) -> None:
    broker.create_topic("orders", 1)
    attributes = {"queue.type": "BatchCQ"}
    topic = TopicConfig("wrapped", read_queue_nums=1, write_queue_nums=1, attributes=attributes)
    broker.tables.topics.put(topic)


def test_properties_are_taken_apart_only_where_one_may_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = mock.Mock(side_effect=decode_properties)
    monkeypatch.setattr(send_request, "decode_properties", decoded)
    many = "".join(f"k{n}\x01v\x02" for n in range(4000)).encode()
    for texts, is_delayed, count in (
        ([many] * 3, False, 0),
        ([many, b"a\x01DELAY\x02"], False, 2),
        ([many, b"DELAY\x011\x02"], True, 2),
    ):
        messages = [(0, b"", text) for text in texts]
        decoded.reset_mock()
        assert send_request.is_any_delayed(encode_batch(messages), messages) is is_delayed
        assert decoded.call_count == count


async def send(
    broker: ServedBroker,
    body: bytes,
    properties: str = "",
    *,
    topic: str = "orders",
    code: Code = Code.SEND_BATCH_MESSAGE,
    sys_flag: int = 0,
) -> Command:
    ext = send_fields(topic) | {"properties": properties, "sysFlag": str(sys_flag)}
    if code == Code.SEND_BATCH_MESSAGE:
        ext = {letter: ext[name] for letter, name in LETTERS.items()}
    return await broker.ask(code, ext, body)


async def min_offset(broker: ServedBroker, topic: str) -> str:
    answer = await broker.ask(Code.GET_MIN_OFFSET, {"topic": topic, "queueId": "0"})
    return (answer.ext or {})["offset"]


@pytest.fixture
def sync_broker(tmp_path: Path) -> Iterator[HotBroker]:
    made = HotBroker(tmp_path / "sync", {"flushDiskType": "SYNC_FLUSH"})
    yield made
    made.served.store.abandon()


async def test_a_batch_is_limited_by_its_size_only(broker: ServedBroker) -> None:
    """Its commit log file of 1 MiB holds no more than these."""
    answer = await send(broker, encode_batch([(0, b"", b"")] * 10_500))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert len((answer.ext or {})["msgId"].split(",")) == 10_500
    assert broker.store.reading.queue_range("orders", 0) == (0, 10_500)


async def test_a_large_batch_that_the_disk_did_not_confirm_is_answered(
    sync_broker: HotBroker,
) -> None:
    """Its ids make a header that no client may send, but that we have to read again."""
    fields = dict(zip("abcdefghi", send_fields("orders").values(), strict=True))
    command = Command(320, 7, ext=fields, body=encode_batch([(0, b"", b"")] * 9000))
    sync_broker.serve(FrameDecoder().feed(encode_command(command)))
    assert sync_broker.peer.written == []
    sync_broker.served.store.fail(StoreFailedError("the disk is gone"))
    ((answer, _),) = sync_broker.answers()
    assert (answer.opaque, answer.remark) == (7, "the disk is gone")


@pytest.mark.parametrize(
    "properties", ["DELAY\x013\x02", "TIMER_DELAY_MS\x0150\x02", "__STARTDELIVERTIME\x0150\x02"]
)
async def test_a_batch_that_says_that_it_is_delayed_is_refused(
    broker: ServedBroker, properties: str
) -> None:
    answer = await send(broker, FIVE, "UNIQ_KEY\x01AB\x02" + properties)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.reading.queue_range("orders", 0) == (0, 0)
    assert (await send(broker, FIVE, "DELAY\x010\x02")).code == ResponseCode.SUCCESS


def test_a_delayed_batch_takes_no_short_way(sync_broker: HotBroker) -> None:
    fields = dict(zip("abcdefghi", send_fields("orders").values(), strict=True))
    command = Command(320, 7, ext=fields | {"i": "DELAY\x013\x02"}, body=FIVE)
    sync_broker.serve(FrameDecoder().feed(encode_command(command)))
    ((answer, _),) = sync_broker.answers()
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("number", ["5", "4", "x"])
async def test_a_batch_that_counts_itself_is_refused_by_a_topic_that_keeps_it_whole(
    broker: ServedBroker, number: str
) -> None:
    properties = f"UNIQ_KEY\x01AB\x02INNER_NUM\x01{number}\x02"
    answer = await send(broker, FIVE, properties, topic="wrapped")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.reading.queue_range("wrapped", 0) == (0, 0)
    assert (await send(broker, FIVE, "UNIQ_KEY\x01AB\x02", topic="wrapped")).code == 0


async def test_a_batch_in_one_message_advances_the_queue_by_its_number(
    broker: ServedBroker,
) -> None:
    offsets = []
    for number in ("5", "2", "0"):
        properties = f"UNIQ_KEY\x01AB\x02INNER_NUM\x01{number}\x02INNER_BASE\x0199\x02"
        answer = await send(
            broker, FIVE, properties, topic="wrapped", code=Code.SEND_MESSAGE, sys_flag=WRAPPED
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        offsets.append((answer.ext or {})["queueOffset"])
    assert offsets == ["0", "5", "7"]
    assert broker.store.reading.queue_range("wrapped", 0) == (0, 8)
    answer = await broker.ask(Code.PULL_MESSAGE, pull_fields("wrapped", 0))
    first, second, _ = decode_messages(answer.body, unwrap=False)
    assert first.sys_flag & WRAPPED == WRAPPED
    assert (first.properties["INNER_NUM"], first.properties["INNER_BASE"]) == ("5", "0")
    assert (second.properties["INNER_NUM"], second.properties["INNER_BASE"]) == ("2", "5")


@pytest.mark.parametrize(
    ("topic", "properties", "sys_flag"),
    [
        ("orders", "INNER_NUM\x015\x02", WRAPPED),
        ("orders", "", SYS_FLAG_INNER_BATCH),
        ("orders", "INNER_NUM\x015\x02", 0),
        ("wrapped", "INNER_NUM\x015\x02", 0),
        ("wrapped", "INNER_NUM\x0132768\x02", WRAPPED),
        ("wrapped", "INNER_NUM\x01-1\x02", WRAPPED),
        ("wrapped", "INNER_NUM\x015\x02DELAY\x011\x02", WRAPPED),
        ("wrapped", "INNER_NUM\x015\x02", WRAPPED | SYS_FLAG_TRANSACTION_PREPARED),
    ],
)
async def test_a_batch_in_one_message_is_refused_where_it_cannot_be_one(
    broker: ServedBroker, topic: str, properties: str, sys_flag: int
) -> None:
    answer = await send(
        broker, FIVE, properties, topic=topic, code=Code.SEND_MESSAGE, sys_flag=sys_flag
    )
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.log.written_offset == 0


async def test_one_record_holds_as_many_messages_as_its_unit_can_count(
    broker: ServedBroker,
) -> None:
    body = encode_batch([(0, b"", b"")] * 32_768)
    answer = await send(broker, body, "UNIQ_KEY\x01AB\x02", topic="wrapped")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    answer = await send(broker, body[22:], "UNIQ_KEY\x01AB\x02", topic="wrapped")
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_new_batch_queue_has_no_min_offset(broker: ServedBroker) -> None:
    assert (await min_offset(broker, "wrapped"), await min_offset(broker, "orders")) == ("-1", "0")
    answer = await broker.ask(Code.PULL_MESSAGE, pull_fields("wrapped", 0))
    assert (answer.ext or {})["minOffset"] == "-1"
    await send(broker, FIVE, "UNIQ_KEY\x01AB\x02", topic="wrapped")
    assert await min_offset(broker, "wrapped") == "0"


@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        ("", True),
        ("WAIT\x01true\x02", True),
        ("WAIT\x01false\x02", False),
        ("TAGS\x01a\x02WAIT\x01false", False),
        ("TAGS\x01false\x02", True),
        ("WAIT\x01false\x02WAIT\x01true\x02", True),
        ("XWAIT\x01false\x02", True),
        ("WAIT\x01falsehood\x02", True),
    ],
)
def test_a_producer_waits_unless_it_says_false(properties: str, waits: bool) -> None:
    assert waits_for_disk(properties) is waits
