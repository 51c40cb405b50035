"""Records by their place: what a body holds never passes for one, whoever names the offset."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.open_stores import BORN_HOST, STORE_HOST, Stores, messages, put, stage
from tests.support.peers import Clock
from tests.support.records import encode_message
from tests.support.served_broker import ServedBroker

TOPIC = "TopicA"


def image(place: int, body: bytes = b"forged", **fields: Any) -> bytes:
    """What a record at *place* would look like."""
    return encode_message(
        body=body,
        commit_log_offset=place,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        **{"topic": TOPIC, "queue_offset": 1, "store_time_ms": 1, **fields},
    )


def put_with_image(store: MessageStore, front: int = 10, **fields: Any) -> int:
    """Store a message whose body holds the image of a record; return where that stands."""
    place = store.log.written_offset + 88 + front
    put(store, bytes(front) + image(place, **fields))
    return place


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    store = stores.open(commit_log_file_size_bytes=1 << 18)
    put(store, b"in front")
    return store


# Its own message's place in the queue, one that is another's, one to come, ones of no queue.
@pytest.mark.parametrize(
    "fields",
    [{}, {"queue_offset": 0}, {"queue_offset": 9}, {"topic": "Gone"}, {"queue_id": 77}],
)
def test_an_image_in_a_body_is_no_record(store: MessageStore, fields: dict[str, Any]) -> None:
    place = put_with_image(store, **fields)
    put(store, b"behind")
    assert store.reading.reader.record(place) == b""
    real = messages(store)
    assert len(real) == 3
    for message in real:
        assert decode_message(store.reading.reader.record(message.commit_log_offset)) == message


def test_images_in_images_are_none_either(store: MessageStore) -> None:
    place = store.log.written_offset + 88
    outer = image(place, body=image(place + 88))
    put(store, outer + image(place + len(outer)))
    for offset in range(place, store.log.written_offset):
        assert store.reading.reader.record(offset) == b""


def test_a_record_of_a_deleted_topic_is_found_by_those_around_it(store: MessageStore) -> None:
    places = [put(store, b"%d" % number, "Gone").commit_log_offset for number in range(3)]
    place = put_with_image(store, topic="Gone")
    store.visibility.delete_topics(["Gone"])
    assert [decode_message(store.reading.reader.record(at)).body for at in places] == [
        b"0",
        b"1",
        b"2",
    ]
    assert store.reading.reader.record(place) == b""


def test_a_record_that_is_not_dispatched_yet_is_found(stores: Stores) -> None:
    store = stores.open(flush_disk_type=FlushDiskType.SYNC)
    first = put(store, b"one").commit_log_offset
    second = put(store, b"two").commit_log_offset
    place = put_with_image(store)
    assert decode_message(store.reading.reader.record(first)).body == b"one"
    assert decode_message(store.reading.reader.record(second)).body == b"two"
    assert store.reading.reader.record(place) == b""


def test_purged_and_held_messages_are_found(store: MessageStore) -> None:
    purged = messages(store)[0].commit_log_offset
    store.visibility.purge_topics([TOPIC])
    store.visibility.hold(store.staging.tail(TOPIC, 0))
    store.staging.read_clock()
    held = stage(store)
    store.commit()
    assert decode_message(store.reading.reader.record(purged)).body == b"in front"
    assert decode_message(store.reading.reader.record(held)).body == b"hello"


def test_bodies_full_of_magic_numbers_cost_little(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store.log.written_offset + 88 + 20_000 * 8
    put(store, bytes.fromhex("00000060daa320a7") * 20_000 + image(place, topic="Gone"))
    looked_at: list[int] = []
    claimed = store.reading.places.read_claimed

    def count(position: int) -> Any:
        looked_at.append(position)
        return claimed(position)

    monkeypatch.setattr(store.reading.places, "read_claimed", count)
    assert store.reading.reader.record(place) == b""
    assert len(looked_at) <= 1001


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    broker = ServedBroker(tmp_path, Clock(), {})
    broker.create_topic(TOPIC)
    yield broker
    asyncio.run(broker.close())


@pytest.mark.parametrize(
    ("code", "more"),
    [
        (RequestCode.VIEW_MESSAGE_BY_ID, {}),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "g", "delayLevel": "0"}),
    ],
)
def test_clients_cannot_name_an_image(
    broker: ServedBroker, code: RequestCode, more: dict[str, str]
) -> None:
    real = broker.put(TOPIC, b"real").commit_log_offset
    place = put_with_image(broker.store)
    for offset, expected in ((real, ResponseCode.SUCCESS), (place, ResponseCode.SYSTEM_ERROR)):
        response = asyncio.run(broker.ask(code, {"offset": str(offset), **more}))
        assert response.code == expected
