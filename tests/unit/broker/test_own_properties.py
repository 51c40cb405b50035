"""What the broker believes because it wrote it itself is taken from no client, on no way in."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.message_codec import (
    decode_batch,
    decode_message,
    decode_messages,
    encode_batch,
)
from tests.support.features import needs
from tests.support.hot_broker import HotBroker

FORGED = {"RH_SINK": "ab12:7:3", "RH_FINAL": "0", "__CRC32#": "1234567890", "TIMER_ORIGIN": "0:0"}
TEXT = "UNIQ_KEY\x01AB\x02" + "".join(f"{name}\x01{text}\x02" for name, text in FORGED.items())
SEND = {"a": "g", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
BATCH = encode_batch([(0, b"one", TEXT.encode()), (0, b"two", b"mine\x01kept\x02")])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HotBroker]:
    made = HotBroker(tmp_path)
    yield made
    made.served.store.abandon()


def frame(code: int, ext: dict[str, str], body: bytes, kind: int) -> Frame:
    command = Command(code, 1, 0, ext=ext, serialize_type=kind)
    ((serialize_type, header, _),) = FrameDecoder().feed(encode_command(command))
    return serialize_type, header, body


def stored(broker: HotBroker, topic: str = "orders") -> list[StoredMessage]:
    return decode_messages(broker.served.store.reading.get_message(topic, 0, 0, 32).body)


def assert_clean(properties: dict[str, str]) -> None:
    assert FORGED.keys().isdisjoint(properties)


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("more", ["", "DELAY\x010\x02", "DUP_INFO\x013\x02"])
def test_not_with_a_message(broker: HotBroker, kind: int, more: str) -> None:
    broker.serve([frame(310, SEND | {"b": "orders", "i": TEXT + more}, b"one", kind)])
    (message,) = stored(broker)
    assert_clean(message.properties)


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("name", FORGED)
def test_not_one_of_them_alone(broker: HotBroker, kind: int, name: str) -> None:
    text = f"UNIQ_KEY\x01AB\x02{name}\x01{FORGED[name]}\x02"
    broker.serve([frame(310, SEND | {"b": "orders", "i": text}, b"one", kind)])
    (message,) = stored(broker)
    assert_clean(message.properties)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_not_in_a_batch(broker: HotBroker, kind: int) -> None:
    broker.serve([frame(320, SEND | {"b": "orders"}, BATCH, kind)])
    one, two = stored(broker)
    assert (one.body, one.properties) == (b"one", {"UNIQ_KEY": "AB"})
    assert (two.body, two.properties) == (b"two", {"mine": "kept"})


def test_not_in_a_batch_that_stays_one_record(broker: HotBroker) -> None:
    broker.serve([frame(320, SEND | {"b": "Batches", "i": TEXT, "m": "true"}, BATCH, 0)])
    record = decode_message(broker.served.store.reading.get_message("Batches", 0, 0, 32).body)
    assert_clean(record.properties)
    inner = decode_batch(record.body)
    assert [body for _, body, _ in inner] == [b"one", b"two"]
    assert_clean(decode_properties(inner[0][2]))


@needs("transactions")
def test_not_with_a_half_message(broker: HotBroker) -> None:
    broker.serve([frame(310, SEND | {"b": "orders", "i": TEXT + "TRAN_MSG\x01true\x02"}, b"1", 0)])
    (half,) = stored(broker, "RMQ_SYS_TRANS_HALF_TOPIC")
    assert_clean(half.properties)


def test_not_in_what_is_sent_back(broker: HotBroker) -> None:
    served = broker.served
    put = served.put("orders", properties=TEXT)
    ext = {"group": "g", "offset": str(put.commit_log_offset), "delayLevel": "-1"}
    response = asyncio.run(served.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext))
    assert response.code == ResponseCode.SUCCESS
    (dead,) = stored(broker, "%DLQ%g")
    assert_clean(dead.properties)
