"""Runtime info (28): what mqadmin and the exporter parse, and that it follows what happens."""

import json
import re

import pytest

from rockhopper.broker.kernel.processors import runtime_info
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.direct import send_fields
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker

# What mqadmin clusterList, brokerStatus and exportMetrics parse, and in which form.
THREE_RATES = r"[0-9]+\.[0-9]+ [0-9]+\.[0-9]+ [0-9]+\.[0-9]+"
PARSED_BY_TOOLS = {
    "brokerVersionDesc": "V5_3_3",
    "brokerActive": "true",
    "putTps": THREE_RATES,
    "getTransferredTps": THREE_RATES,
    "getTransferedTps": THREE_RATES,
    "getFoundTps": THREE_RATES,
    "getMissTps": THREE_RATES,
    "getTotalTps": THREE_RATES,
    "sendThreadPoolQueueSize": "[0-9]+",
    "pullThreadPoolQueueSize": "[0-9]+",
    "ackThreadPoolQueueSize": "[0-9]+",
    "sendThreadPoolQueueHeadWaitTimeMills": "[0-9]+",
    "pullThreadPoolQueueHeadWaitTimeMills": "[0-9]+",
    "ackThreadPoolQueueHeadWaitTimeMills": "[0-9]+",
    "pageCacheLockTimeMills": "[0-9]+",
    "earliestMessageTimeStamp": "-?[0-9]+",
    "commitLogDiskRatio": r"0\.[0-9]+",
    "consumeQueueDiskRatio": r"0\.[0-9]+",
    "timerReadBehind": "[0-9]+",
    "timerOffsetBehind": "[0-9]+",
    "timerCongestNum": "[0-9]+",
    "timerEnqueueTps": r"[0-9]+\.[0-9]+",
    "timerDequeueTps": r"[0-9]+\.[0-9]+",
    "msgPutTotalYesterdayMorning": "[0-9]+",
    "msgPutTotalTodayMorning": "[0-9]+",
    "msgPutTotalTodayNow": "[0-9]+",
    "msgGetTotalYesterdayMorning": "[0-9]+",
    "msgGetTotalTodayMorning": "[0-9]+",
    "msgGetTotalTodayNow": "[0-9]+",
    "bootTimestamp": "[0-9]+",
    "putMessageAverageSize": r"[0-9]+\.[0-9]+",
    "runtime": r"\[ [0-9]+ days, [0-9]+ hours, [0-9]+ minutes, [0-9]+ seconds \]",
    "commitLogDirCapacity": r"Total : [0-9.]+ [KMGTi]*B, Free : [0-9.]+ [KMGTi]*B\.",
    "remainHowManyDataToFlush": "[0-9.]+ [KMGTi]*B",
}


async def runtime(broker: ServedBroker) -> dict[str, str]:
    answer = await broker.ask(Code.GET_BROKER_RUNTIME_INFO)
    assert answer.code == ResponseCode.SUCCESS
    table = fastjson.loads(answer.body)["table"]
    assert isinstance(table, dict)
    return table


@pytest.mark.parametrize(("key", "form"), PARSED_BY_TOOLS.items())
async def test_runtime_info_has_what_tools_parse(broker: ServedBroker, key: str, form: str) -> None:
    broker.create_topic("orders")
    broker.put("orders")
    assert re.fullmatch(form, (await runtime(broker))[key])


async def test_every_value_of_the_runtime_info_is_text(broker: ServedBroker) -> None:
    assert all(isinstance(value, str) for value in (await runtime(broker)).values())


async def test_runtime_info_follows_traffic(broker: ServedBroker, clock: Clock) -> None:
    broker.create_topic("orders")
    put = broker.put("orders")
    stored_ms = clock.now_ms
    broker.stats.get_send_traffic("orders").count_request(10, 1000)
    broker.stats.get_pull_traffic("orders", "billing").count_request(5, 500)
    broker.stats.get_found = 2
    clock.advance(3_723_000)
    info = await runtime(broker)
    assert info["msgPutTotalTodayNow"] == "10"
    assert info["msgGetTotalTodayNow"] == "5"
    assert info["putMessageAverageSize"] == "100.0000"
    assert info["commitLogMaxOffset"] == str(put.end_offset)
    assert info["earliestMessageTimeStamp"] == str(stored_ms)
    assert info["runtime"] == "[ 0 days, 1 hours, 2 minutes, 3 seconds ]"
    assert float(info["putTps"].split()[0]) == pytest.approx(10 / 3723, abs=1e-4)


async def test_runtime_info_shows_how_far_the_delay_levels_are(broker: ServedBroker) -> None:
    broker.put("SCHEDULE_TOPIC_XXXX", queue_id=2)
    info = await runtime(broker)
    assert info["scheduleMessageOffset_3"] == "0,1"
    assert "scheduleMessageOffset_4" not in info


async def test_broker_that_takes_no_messages_is_not_active(broker: ServedBroker) -> None:
    broker.store.retention.space.full_reason = "the disk is full"
    assert (await runtime(broker))["brokerActive"] == "false"
    broker.store.retention.space.full_reason = None


def test_sizes_are_readable() -> None:
    sizes = [0, 1023, 1024, 1536, 100 << 30, 5 << 50]
    assert [runtime_info.format_size(size) for size in sizes] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "100.0 GiB",
        "5120.0 TiB",
    ]


async def test_runtime_info_has_what_the_exporter_cannot_do_without(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    await broker.ask(Code.SEND_MESSAGE, send_fields("orders"), b"hello")
    answer = await broker.ask(Code.GET_BROKER_RUNTIME_INFO)
    table = json.loads(answer.body)["table"]
    shares = table["putMessageDistributeTime"].split()
    assert len(shares) == 13
    assert sum(int(share.rpartition(":")[2]) for share in shares) == 1
    assert float(table["putLatency99"]) >= 0
    assert float(table["putLatency999"]) >= float(table["putLatency99"])
