"""Codes 25, 26, 28, 45 and 315: settings that may change, and how the broker says it does."""

import json

import pytest
from structlog.testing import capture_logs

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
        "rockhopper.broker.kernel.processors.broker_admin.properties_of", lambda _config: shown
    )
    assert await settings(broker) == {
        "innerClientAuthenticationCredentials": "******",
        "aclPassword": "",
        "a": "b",
    }


async def test_delay_offsets_are_shown_as_their_file_has_them(broker: ServedBroker) -> None:
    broker.kernel.scheduled.delayed.table.set_offset(3, 7)
    answer = await broker.ask(Code.GET_ALL_DELAY_OFFSET)
    assert b'"offsetTable":{3:7}' in answer.body


async def test_statistics_of_a_topic(broker: ServedBroker, clock: Clock) -> None:
    broker.stats.get_send_traffic("orders").count_request(20, 400)
    clock.advance(10_000)
    broker.stats.get_send_traffic("orders").count_request(20, 400)
    ext = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    answer = await broker.ask(Code.VIEW_BROKER_STATS_DATA, ext)
    assert fastjson.loads(answer.body)["statsMinute"] == {"avgpt": 20.0, "sum": 40, "tps": 4.0}
    assert sorted(fastjson.loads(answer.body)) == ["statsDay", "statsHour", "statsMinute"]


@pytest.mark.parametrize(
    ("name", "key"), [("TOPIC_PUT_NUMS", "nothing"), ("NONSENSE", "orders"), ("x" * 9000, "k")]
)
async def test_statistics_that_do_not_exist(broker: ServedBroker, name: str, key: str) -> None:
    broker.stats.get_send_traffic("orders").count_request(1, 1)
    ext = {"statsName": name, "statsKey": key}
    answer = await broker.ask(Code.VIEW_BROKER_STATS_DATA, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").endswith("not exist")
    assert len(answer.remark or "") < 1000


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
