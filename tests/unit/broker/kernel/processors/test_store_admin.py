"""60, 61, 308, 321, 329, 354, 355, 907, 2001 to 2004: as Apache RocketMQ 5.5.0 answered them."""

import json
import struct

import pytest

from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from tests.support.direct import short_send_fields
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker

TAGGED = "TAGS\x01A\x02"


def document(answer: Command) -> dict[str, object]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = fastjson.loads(answer.body)
    assert isinstance(found, dict)
    return found


async def test_timers_say_how_far_they_are(broker: ServedBroker, clock: Clock) -> None:
    answer = await broker.ask(Code.GET_TIMER_CHECK_POINT)
    read_ms, flushed, offset, of_master, state, timestamp_ms, _ = struct.unpack(">7q", answer.body)
    assert read_ms == clock() // 1000 * 1000
    assert (flushed, offset, of_master, state, timestamp_ms) == (0, 0, 0, 0, clock())


async def test_timers_say_what_waits(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.kernel.scheduled.timers.open()
    for number in range(3):
        properties = f"UNIQ_KEY\x01A{number}\x02TIMER_DELAY_SEC\x01{100 + number}\x02"
        fields = short_send_fields("orders", properties=properties)
        assert (await broker.ask(Code.SEND_MESSAGE_V2, fields, b"later")).code == 0
    while broker.kernel.scheduled.timers.queue.follow():
        pass
    counts = document(await broker.ask(Code.GET_TIMER_METRICS))["timingCount"]
    assert isinstance(counts, dict)
    assert {topic: value["count"] for topic, value in counts.items()} == {"orders": 3}


async def test_consume_queue_entries(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    for _ in range(3):
        broker.put("orders", properties=TAGGED)
    fields = {"topic": "orders", "queueId": "0", "index": "1", "count": "5", "consumerGroup": "g"}
    found = document(await broker.ask(Code.QUERY_CONSUME_QUEUE, fields))
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
    assert found["filterData"] == "g@orders is not online!"
    rows = found["queueData"]
    assert isinstance(rows, list)
    assert [(row["eval"], row["tagsCode"]) for row in rows] == [(False, 65)] * 2
    assert rows[1]["physicOffset"] == rows[0]["physicOffset"] + rows[0]["physicSize"]


@pytest.mark.parametrize(
    ("topic", "index", "code", "remark"),
    [
        ("orders", "100", 0, "Index 100 of 0@orders is not exist!"),
        ("orders", "-1", 0, "Index -1 of 0@orders is not exist!"),
        ("unknown", "0", 1, "0@unknown is not exist!"),
    ],
)
async def test_consume_queue_entries_that_there_are_not(
    broker: ServedBroker, topic: str, index: str, code: int, remark: str
) -> None:
    broker.create_topic("orders")
    broker.put("orders")
    fields = {"topic": topic, "queueId": "0", "index": index, "count": "5"}
    answer = await broker.ask(Code.QUERY_CONSUME_QUEUE, fields)
    assert (answer.code, answer.remark, answer.body) == (code, remark, b"")


async def test_smallest_offsets_of_all_groups_and_nothing_is_deleted(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    for group, queue_id, offset in (("a", 1, 2), ("b", 1, 4), ("b", 0, 0), ("c", 1, 3)):
        broker.tables.offsets.commit("orders", group, queue_id, offset)
    fields = {"topic": "orders", "compareGroup": "b"}
    answer = await broker.ask(Code.QUERY_CORRECTION_OFFSET, fields)
    assert answer.body == b'{"correctionOffsets":{0:0,1:2}}'
    answer = await broker.ask(Code.QUERY_CORRECTION_OFFSET, fields | {"filterGroups": "a,x"})
    assert answer.body == b'{"correctionOffsets":{0:0,1:3}}'
    assert broker.tables.offsets.get("orders", "a", 1) == 2


async def test_expired_files_are_deleted_when_asked(broker: ServedBroker) -> None:
    assert (await broker.ask(Code.DELETE_EXPIRED_COMMITLOG)).code == ResponseCode.SUCCESS


async def test_a_master_without_slaves(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    end = broker.put("orders").end_offset
    found = document(await broker.ask(Code.GET_BROKER_HA_STATUS))
    assert (found["master"], found["inSyncSlaveNums"]) == (True, 0)
    assert (found["haConnectionInfo"], found["masterCommitLogMaxOffset"]) == ([], end)


async def test_what_is_rocksdbs_is_answered(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {"topic": "t"})
    assert answer.body == b'{"checkStatus":2}'
    kinds = {"configType": "topics;subscriptionGroups;consumerOffsets"}
    answer = await broker.ask(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, kinds)
    assert (answer.code, answer.remark) == (0, "export done.")
    # As `mqadmin rocksDBConfigToJson -t topics` of 5.5.0 writes it.
    answer = await broker.ask(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "topics;"})
    assert (answer.code, answer.remark) == (0, "export done.")
    answer = await broker.ask(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "nonsense"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "Unknown config type: nonsense" in (answer.remark or "")


async def test_thresholds_of_cold_data(broker: ServedBroker) -> None:
    text = b"g1=1024\ng2=2048\ng3=abc\n"
    assert (await broker.ask(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=text)).code == 0
    assert (await broker.ask(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"g1")).code == 0
    assert (await broker.ask(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"unknown")).code == 0
    answer = await broker.ask(Code.GET_COLD_DATA_FLOW_CTR_INFO)
    assert json.loads(answer.body) == {
        "runtimeTable": {},
        "configTable": {"g2": 2048},
        "cgColdReadThreshold": 3145728,
        "globalColdReadThreshold": 104857600,
        "globalAcc": 0,
    }


@pytest.mark.parametrize(
    ("mode", "code", "remark"),
    [
        ("0", 0, "set commitlog readahead mode success, mode: 0"),
        ("1", 0, "set commitlog readahead mode success, mode: 1"),
        ("2", 29, "set commitlog readahead mode param value error"),
        ("x", 1, "set commitlog readahead mode failed"),
        (None, 1, "set commitlog readahead mode failed"),
    ],
)
async def test_read_ahead(broker: ServedBroker, mode: str | None, code: int, remark: str) -> None:
    broker.create_topic("orders")
    broker.put("orders")
    fields = {} if mode is None else {"READ_AHEAD_MODE": mode}
    answer = await broker.ask(Code.SET_COMMITLOG_READ_MODE, fields)
    assert (answer.code, answer.remark) == (code, remark)
