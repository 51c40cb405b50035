"""Codes 25, 26, 28, 45 and 315: settings that may change, and how the broker says it does."""

import json
import re

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.processors import runtime_info
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from tests.support.direct import send_fields
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker


async def update(broker: ServedBroker, text: str) -> Command:
    return await broker.ask(Code.UPDATE_BROKER_CONFIG, body=text.encode())


async def settings(broker: ServedBroker) -> dict[str, str]:
    answer = await broker.ask(Code.GET_BROKER_CONFIG)
    assert answer.code == ResponseCode.SUCCESS
    lines = answer.body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


async def test_live_setting_changes_at_once(broker: ServedBroker) -> None:
    with capture_logs() as logs:
        answer = await update(broker, "# by hand\nautoCreateSubscriptionGroup=false\n")
    assert answer.code == ResponseCode.SUCCESS
    assert broker.config.live.auto_create_subscription_group is False
    assert (await settings(broker))["autoCreateSubscriptionGroup"] == "false"
    assert [entry["changed"] for entry in logs] == [{"autoCreateSubscriptionGroup": "false"}]


async def test_version_counts_changes_only(broker: ServedBroker) -> None:
    async def counter() -> int:
        answer = await broker.ask(Code.GET_BROKER_CONFIG)
        return int(json.loads((answer.ext or {})["version"])["counter"])

    await update(broker, "brokerPermission=6\nnonsense=1\n")
    assert await counter() == 0
    await update(broker, "brokerPermission=4\n")
    assert await counter() == 1


@pytest.mark.parametrize(
    "text",
    [
        "rocketmqHome=/tmp/x",
        "brokerConfigPath=/tmp/x",
        "configBlackList=",
        "storePathRootDir=/tmp/x",
        "storePathCommitLog=/tmp/x",
        "kvConfigPath=/etc/passwd",
        "unknownPath=/etc/passwd",
        "rocketmq\\u0048ome=/tmp/x",
    ],
)
async def test_settings_that_name_paths_are_refused(broker: ServedBroker, text: str) -> None:
    answer = await update(broker, f"brokerPermission=4\n{text}\n")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "Can not update config in black list."
    assert broker.config.live.broker_permission == 6


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("deleteWhen", "03;05"),
        ("cleanResourceInterval", "5000"),
        ("deleteCommitLogFilesInterval", "10"),
        ("deleteFileBatchMax", "20"),
        ("diskMaxUsedSpaceRatio", "60"),
        ("diskSpaceCleanForciblyRatio", "80"),
        ("diskSpaceWarningLevelRatio", "85"),
        ("cleanFileForciblyEnable", "false"),
        ("maxMsgsNumBatch", "128"),
        ("defaultQueryMaxNum", "16"),
    ],
)
async def test_settings_of_retention_and_queries_change_while_it_runs(
    broker: ServedBroker, key: str, text: str
) -> None:
    assert (await update(broker, f"{key}={text}")).code == ResponseCode.SUCCESS
    assert (await settings(broker))[key] == text


@pytest.mark.parametrize(
    "text",
    [
        "listenPort=1234",
        "fileReservedTime=1",
        "remoteAdmin=true",
        "bindAddress=0.0.0.0",
        "brokerPermission=nonsense",
        "brokerPermission=99",
        "brokerPermission=4\nlistenPort=1",
    ],
)
async def test_settings_that_may_not_change_or_make_no_sense_are_refused(
    broker: ServedBroker, text: str
) -> None:
    before = await settings(broker)
    answer = await update(broker, text)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "setting" in (answer.remark or "")
    assert await settings(broker) == before


async def test_unknown_settings_are_ignored(broker: ServedBroker) -> None:
    assert (await update(broker, "someThreadPoolNums=8")).code == ResponseCode.SUCCESS
    assert (await update(broker, "")).code == ResponseCode.SUCCESS


async def test_flood_of_settings_is_refused(broker: ServedBroker) -> None:
    answer = await update(broker, "brokerPermission=4\n" * 10_000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.config.live.broker_permission == 6


async def test_settings_are_shown_by_rocketmqs_names(broker: ServedBroker) -> None:
    shown = await settings(broker)
    assert shown["brokerName"] == "broker-a"
    assert shown["flushDiskType"] == "ASYNC_FLUSH"
    assert shown["autoCreateTopicEnable"] == "true"


async def test_secrets_are_masked(broker: ServedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {"innerClientAuthenticationCredentials": "s3cret", "aclPassword": "", "a": "b"}
    monkeypatch.setattr(
        "rockhopper.broker.processors.broker_admin.properties_of", lambda _config: shown
    )
    assert await settings(broker) == {
        "innerClientAuthenticationCredentials": "******",
        "aclPassword": "",
        "a": "b",
    }


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
    broker.stats.put("orders").add(10, 1000)
    broker.stats.got("orders", "billing").add(5, 500)
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
    broker.store.disk_full_reason = "the disk is full"
    assert (await runtime(broker))["brokerActive"] == "false"
    broker.store.disk_full_reason = None


async def test_delay_offsets_are_shown_as_their_file_has_them(broker: ServedBroker) -> None:
    broker.delayed.table.put(3, 7)
    answer = await broker.ask(Code.GET_ALL_DELAY_OFFSET)
    assert b'"offsetTable":{3:7}' in answer.body


async def test_statistics_of_a_topic(broker: ServedBroker, clock: Clock) -> None:
    broker.stats.put("orders").add(20, 400)
    clock.advance(10_000)
    broker.stats.put("orders").add(20, 400)
    ext = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    answer = await broker.ask(Code.VIEW_BROKER_STATS_DATA, ext)
    assert fastjson.loads(answer.body)["statsMinute"] == {"avgpt": 20.0, "sum": 40, "tps": 4.0}
    assert sorted(fastjson.loads(answer.body)) == ["statsDay", "statsHour", "statsMinute"]


@pytest.mark.parametrize(
    ("name", "key"), [("TOPIC_PUT_NUMS", "nothing"), ("NONSENSE", "orders"), ("x" * 9000, "k")]
)
async def test_statistics_that_do_not_exist(broker: ServedBroker, name: str, key: str) -> None:
    broker.stats.put("orders").add(1, 1)
    ext = {"statsName": name, "statsKey": key}
    answer = await broker.ask(Code.VIEW_BROKER_STATS_DATA, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").endswith("not exist")
    assert len(answer.remark or "") < 500


def test_sizes_are_readable() -> None:
    sizes = [0, 1023, 1024, 1536, 100 << 30, 5 << 50]
    assert [runtime_info.as_text(size) for size in sizes] == [
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


async def test_the_whole_broker_is_asked_for_by_the_name_of_its_cluster(
    broker: ServedBroker,
) -> None:
    broker.create_topic("orders")
    await broker.ask(Code.SEND_MESSAGE, send_fields("orders"), b"hello")
    ext = {"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"}
    answer = await broker.ask(Code.VIEW_BROKER_STATS_DATA, ext)
    assert json.loads(answer.body)["statsMinute"]["sum"] == 1
    answer = await broker.ask(Code.VIEW_BROKER_STATS_DATA, ext | {"statsKey": "others"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
