"""What a master answers that is to be followed."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.name_server import followed_master
from rockhopper.broker.name_server.followed_master import FollowError, Master, MasterFacts
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from tests.support.classic_master import FILE_SIZE_BYTES, TIMER_CHECK, ClassicMaster


@pytest.fixture
async def apache(tmp_path: Path) -> AsyncIterator[ClassicMaster]:
    async with ClassicMaster(tmp_path / "apache") as apache:
        yield apache


@pytest.fixture
async def master(apache: ClassicMaster) -> AsyncIterator[Master]:
    master = Master(apache.address)
    yield master
    master.close()


async def test_it_tells_where_its_log_is_and_where_it_replicates(
    apache: ClassicMaster, master: Master
) -> None:
    apache.log.add(3)
    address = f"127.0.0.1:{apache.settings['haListenPort']}"
    apache.settings["messageDelayLevel"] = "1s 5s"
    meanings = {"messageDelayLevel": "1s 5s"}
    expected = MasterFacts(0, apache.log.end, FILE_SIZE_BYTES, address, "broker-a", True, meanings)
    assert await master.facts() == expected
    other = Master(apache.address, "10.0.0.7:10912")
    assert (await other.facts()).ha_address == "10.0.0.7:10912"
    other.close()


@pytest.mark.parametrize(
    ("key", "value"),
    [("brokerPermission", "4"), ("brokerPermission", "0"), ("brokerRole", "SLAVE")],
)
async def test_it_tells_whether_it_takes_messages(
    key: str, value: str, apache: ClassicMaster, master: Master
) -> None:
    apache.settings[key] = value
    assert not (await master.facts()).is_writable


@pytest.mark.parametrize("key", ["enableControllerMode", "enableDLegerCommitLog"])
async def test_masters_of_other_kinds_are_refused(
    key: str, apache: ClassicMaster, master: Master
) -> None:
    apache.settings[key] = "true"
    with pytest.raises(FollowError, match=f"{key}=true.*only masters with classic"):
        await master.facts()


@pytest.mark.parametrize(
    ("key", "way_out"),
    [
        ("timerRocksDBEnable", "switchTimerEngine -e F"),
        ("popConsumerKVServiceEnable", "200056"),
        ("transRocksDBEnable", "restart it without"),
    ],
)
async def test_a_master_with_a_part_of_its_state_in_rocksdb_alone_is_refused(
    key: str, way_out: str, apache: ClassicMaster, master: Master
) -> None:
    apache.settings[key] = "true"
    with pytest.raises(FollowError, match=f"{key}=true.*{way_out}"):
        await master.facts()


async def test_what_is_no_broker_is_refused(apache: ClassicMaster, master: Master) -> None:
    del apache.settings["mappedFileSizeCommitLog"]
    with pytest.raises(FollowError, match="listenPort of a broker"):
        await master.facts()
    apache.answer(RequestCode.GET_BROKER_RUNTIME_INFO, b"{}")
    with pytest.raises(FollowError, match="listenPort of a broker"):
        await master.log_range()


async def test_a_master_that_was_just_started_is_asked_again(
    apache: ClassicMaster, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_master, "SAMPLED_WITHIN_S", (0.0, 0.0))
    info = json.dumps({"table": {"commitLogMinOffset": "-1", "commitLogMaxOffset": "0"}})
    answers = [Command(1, remark="NoSuchElementException"), Command(0), Command(0)]
    answers[1].body = answers[2].body = info.encode()
    apache.server.on(RequestCode.GET_BROKER_RUNTIME_INFO, lambda _: answers.pop(0))
    assert await master.log_range() == (0, 0)


async def test_old_masters_have_fewer_tables(apache: ClassicMaster, master: Master) -> None:
    assert (await master.tables()).timer_check == TIMER_CHECK
    for code in (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_TIMER_CHECK_POINT):
        apache.server.on(code, lambda _: Command(3, remark="not supported"))
    assert (await master.tables()).timer_check is None
    assert await master.table("GET_ALL_MESSAGE_REQUEST_MODE") is None


async def test_refusals_silence_and_absence_are_told(
    apache: ClassicMaster, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    apache.server.on(RequestCode.GET_BROKER_CONFIG, lambda _: Command(16, remark="no admin"))
    with pytest.raises(
        FollowError, match=r"cannot query the master.*refused with code 16: no admin"
    ):
        await master.facts()
    monkeypatch.setattr(followed_master, "ANSWER_TIMEOUT_S", 0.01)
    apache.server.on(RequestCode.GET_BROKER_CONFIG, lambda _: None)
    with pytest.raises(FollowError, match="no answer within"):
        await master.facts()
    nobody = Master("127.0.0.1:1")
    with pytest.raises(FollowError, match=r"cannot query the master at 127\.0\.0\.1:1"):
        await nobody.facts()
