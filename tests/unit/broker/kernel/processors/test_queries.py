"""Codes 12 and 33: the newest messages with a key, verified, and those at a place in the log."""

import pytest

from rockhopper.broker.kernel.processors import queries
from rockhopper.broker.server.loop import cooperative_work
from rockhopper.broker.store.index import index_file
from rockhopper.broker.store.reading import record_search
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker

# Two strings with one Java hash: hash("Aa") == hash("BB").
KEY, KEY_OF_THE_SAME_HASH = "Aa", "BB"


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders")


def query(key: str, clock: Clock, **changes: str) -> dict[str, str]:
    return {
        "topic": "orders",
        "key": key,
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(clock.now_ms + 1000),
    } | changes


async def bodies(broker: ServedBroker, ext: dict[str, str]) -> list[bytes]:
    answer = await broker.ask(Code.QUERY_MESSAGE, ext)
    assert answer.code == ResponseCode.SUCCESS
    return [message.body for message in decode_messages(answer.body)]


async def test_the_newest_with_a_key_come_in_the_order_of_the_log(
    broker: ServedBroker, clock: Clock
) -> None:
    for body in (b"one", b"two"):
        broker.put("orders", body, properties="KEYS\x01k1 k2\x02")
        clock.advance(1000)
    broker.put("orders", b"other", properties="KEYS\x01k3\x02")
    assert await bodies(broker, query("k1", clock)) == [b"one", b"two"]
    assert await bodies(broker, query("k2", clock, maxNum="1")) == [b"two"]


async def test_nothing_is_found_when_nothing_is_wanted(broker: ServedBroker, clock: Clock) -> None:
    broker.put("orders", b"one", properties="KEYS\x01k1\x02")
    for count in ("0", "-1"):
        answer = await broker.ask(Code.QUERY_MESSAGE, query("k1", clock, maxNum=count))
        assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_messages_are_found_by_their_tag(broker: ServedBroker, clock: Clock) -> None:
    times = []
    for number in range(6):
        properties = f"TAGS\x01{('new', 'paid')[number % 2]}\x02"
        broker.put("orders", b"%d" % number, queue_id=number // 3, properties=properties)
        times.append(clock.now_ms)
        clock.advance(1000)
    assert await bodies(broker, query("new", clock, indexType="T")) == [b"0", b"2", b"4"]
    assert await bodies(broker, query("new", clock, indexType="T", maxNum="2")) == [b"2", b"4"]
    between = {"beginTimestamp": str(times[1]), "endTimestamp": str(times[3])}
    assert await bodies(broker, query("paid", clock, indexType="T", **between)) == [b"1", b"3"]
    for ext in (
        query("none", clock, indexType="T"),
        query("new", clock, indexType="K"),
        query("new", clock),
        query("new", clock, indexType="T", endTimestamp=str(times[0] - 1)),
        query("new", clock, indexType="T", topic="others"),
    ):
        answer = await broker.ask(Code.QUERY_MESSAGE, ext)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND, ext


async def test_a_search_by_tag_goes_in_steps_and_is_not_misled(
    broker: ServedBroker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_search, "UNITS_PER_STEP", 3)
    for number in range(20):
        tag = (KEY, KEY_OF_THE_SAME_HASH)[number % 2]
        broker.put("orders", b"%d" % number, properties=f"TAGS\x01{tag}\x02")
    expected = [b"%d" % number for number in range(0, 20, 2)]
    assert await bodies(broker, query(KEY, clock, indexType="T")) == expected
    await broker.ask(Code.PURGE_TOPIC, {"topic": "orders"})
    answer = await broker.ask(Code.QUERY_MESSAGE, query(KEY, clock, indexType="T"))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_look_up_by_key_lets_others_go_on_between_its_steps(
    broker: ServedBroker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "ENTRIES_PER_STEP", 3)
    turns: list[None] = []
    real = cooperative_work.next_slice

    async def next_slice() -> None:
        turns.append(None)
        await real()

    monkeypatch.setattr(queries, "next_slice", next_slice)
    wanted = query(KEY, clock)
    broker.put("orders", b"old", properties=f"KEYS\x01{KEY}\x02")
    clock.advance(5000)
    for _ in range(9):
        broker.put("orders", b"new", properties=f"KEYS\x01{KEY}\x02")
    assert await bodies(broker, wanted) == [b"old"]
    assert len(turns) == 3


async def test_message_is_found_by_its_unique_key(broker: ServedBroker, clock: Clock) -> None:
    broker.put("orders", b"one", properties="UNIQ_KEY\x01U1\x02")
    ext = query("U1", clock, _UNIQUE_KEY_QUERY="true", maxNum="0")
    assert await bodies(broker, ext) == [b"one"]


async def test_key_of_the_same_hash_is_not_mistaken(broker: ServedBroker, clock: Clock) -> None:
    broker.put("orders", b"one", properties=f"KEYS\x01{KEY}\x02")
    answer = await broker.ask(Code.QUERY_MESSAGE, query(KEY_OF_THE_SAME_HASH, clock))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_another_topic_and_another_time_find_nothing(
    broker: ServedBroker, clock: Clock
) -> None:
    broker.create_topic("bills")
    broker.put("orders", properties="KEYS\x01k1\x02")
    missing = [
        query("k1", clock, topic="bills"),
        query("k1", clock, topic="nothing"),
        query("k1", clock, beginTimestamp=str(clock.now_ms + 5000), endTimestamp=str(2**60)),
        query("k1", clock, endTimestamp=str(clock.now_ms - 5000)),
        query("k2", clock),
        query("", clock),
    ]
    for ext in missing:
        answer = await broker.ask(Code.QUERY_MESSAGE, ext)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"


async def test_answer_says_how_far_the_index_is(broker: ServedBroker, clock: Clock) -> None:
    end = broker.put("orders", properties="KEYS\x01k1\x02").end_offset
    for key in ("k1", "k2"):
        answer = await broker.ask(Code.QUERY_MESSAGE, query(key, clock))
        assert answer.ext == {
            "indexLastUpdateTimestamp": str(clock.now_ms),
            "indexLastUpdatePhyoffset": str(end),
        }


async def test_query_without_a_time_names_the_missing_field(
    broker: ServedBroker, clock: Clock
) -> None:
    ext = query("k1", clock)
    del ext["endTimestamp"]
    answer = await broker.ask(Code.QUERY_MESSAGE, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "endTimestamp" in (answer.remark or "")


async def test_message_is_found_by_its_place_in_the_log(broker: ServedBroker) -> None:
    broker.put("orders", b"one")
    place = broker.put("orders", b"two").commit_log_offset
    answer = await broker.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(place)})
    assert answer.code == ResponseCode.SUCCESS
    assert decode_message(answer.body).body == b"two"


@pytest.mark.parametrize("offset", [-1, 2**62, -(2**63), 1, 100_000])
async def test_place_that_is_no_message_is_not_found(broker: ServedBroker, offset: int) -> None:
    broker.put("orders", b"one")
    answer = await broker.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"can not find message by the offset, {offset}"
    assert answer.body == b""


async def test_place_that_is_no_number_is_an_invalid_parameter(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": "here"})
    assert answer.code == ResponseCode.INVALID_PARAMETER
