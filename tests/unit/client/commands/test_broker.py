"""`rockhopper broker` against our broker."""

from dataclasses import replace

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.version import own_version
from tests.support.command_line import CommandLine


async def test_a_broker_tells_its_state_and_settings(broker: Broker, shell: CommandLine) -> None:
    (status,) = (await shell.run("broker", "status", "--json")).objects
    assert (status["broker"], status["brokerVersionDesc"]) == ("broker-a", "V5_3_3")
    assert isinstance(status["msgPutTotalTodayNow"], int)
    assert len(status["putTps"]) == 3
    assert status["rockhopperAccess"] == "every user of its host"
    both = f"V5_3_3 (Rockhopper {own_version()})"
    assert status["rockhopperVersion"] == own_version()
    assert both in (await shell.run("broker", "status")).out
    assert f"V5_3_3 ({own_version()})" in (await shell.run("cluster")).out
    live = await shell.run("broker", "config", "--live")
    assert live.rows[0] == ["SETTING", "VALUE", "UNIT", "DEFAULT"]
    every = await shell.run("broker", "config", "listenPort", "defaultTopicQueueNums")
    assert every.rows[0] == ["SETTING", "VALUE", "UNIT", "CHANGES", "DEFAULT"]
    assert sorted(row[3] for row in every.rows[1:]) == ["live", "restart"]
    changed = await shell.run("broker", "config", "defaultTopicQueueNums=3")
    assert changed.code == 0
    assert changed.rows[1][:5] == ["defaultTopicQueueNums", "3", "-", "live*", "8"]
    assert changed.out.endswith("; to keep it, write it into broker.conf\n")
    (told,) = (await shell.run("broker", "config", "listenPort", "--json")).objects
    listening = told["settings"]["listenPort"]
    assert (listening["default"], listening["live"]) == (10911, False)
    live = await shell.run("broker", "config", "--live", "--changed")
    assert live.rows[0] == every.rows[0]
    assert [row[0] for row in live.rows[1:-1]] == ["defaultTopicQueueNums"]
    refused = await shell.run("broker", "config", "listenPort=1")
    assert refused.code == 1
    assert "a change needs a restart" in refused.err
    unknown = await shell.run("broker", "config", "noSuchSetting")
    assert (unknown.code, unknown.err) == (1, "rockhopper: broker-a has no setting noSuchSetting\n")
    (listed,) = (await shell.run("cluster", "--json")).objects
    assert (listed["address"], listed["error"]) == (broker.address, None)
    assert 0 < listed["commitLogDiskRatio"] < 1
    assert broker.address in (await shell.run("cluster")).out


async def test_a_change_says_which_replicas_do_not_have_it(
    broker: Broker, shell: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    masters_of = Admin.brokers

    async def with_replicas(admin: Admin, **_: bool) -> list[BrokerAddress]:
        (master,) = await masters_of(admin)
        return [master, *(replace(master, broker_id=number) for number in (2, 3))]

    alone = await shell.run("broker", "config", "messageDelayLevel=1s 3s")
    assert (alone.code, alone.err) == (0, "")
    monkeypatch.setattr(Admin, "brokers", with_replicas)
    changed = await shell.run("broker", "config", "messageDelayLevel=1s 2s")
    assert changed.code == 0
    assert f"at {broker.address}, is changed: its 2 replicas go by broker.conf" in changed.err
    assert (await shell.run("broker", "config", "messageDelayLevel")).err == ""


async def _set(broker: Broker, *names: str) -> dict[str, str]:
    async with Admin(broker.nameserver) as admin:
        settings = await admin.broker_config(broker.address)
    return {name: settings[name] for name in names}


async def test_a_change_with_an_unknown_name_changes_nothing(
    broker: Broker, shell: CommandLine
) -> None:
    refused = await shell.run("broker", "config", "defaultTopicQueueNums=5", "flushDisktype=x")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "rockhopper: broker-a has no setting flushDisktype: did you mean flushDiskType?\n"
    )
    assert await _set(broker, "defaultTopicQueueNums") == {"defaultTopicQueueNums": "8"}


async def test_a_refusal_names_the_brokers_that_are_changed_already(
    broker: Broker, shell: CommandLine
) -> None:
    long_delays = {
        "role": "broker",
        "namesrvAddr": broker.nameserver,
        "brokerName": "broker-b",
        "messageDelayLevel": "1s 10h",
    }
    async with Broker.temporary(long_delays) as other:
        await other.announce()
        refused = await shell.run("broker", "config", "fileReservedTime=5")
    assert refused.code == 1
    assert "messages wait up to 10 hours" in refused.err
    assert refused.err.endswith("\nrockhopper: before the failure it was changed on broker-a\n")
