"""A store that follows: what is in it, and when its broker may take over."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.name_server.followed_master import FollowError
from rockhopper.broker.replication.rocketmq.slave import following_file
from rockhopper.broker.replication.rocketmq.slave.follower import SlaveFollower
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.store_layout import StoreLayout
from tests.support.classic_master import FILE_SIZE_BYTES, ClassicMaster
from tests.support.direct import pull, send
from tests.support.killed_store import copy_killed
from tests.support.turns import until

Make = Callable[..., Broker]


@pytest.fixture
async def apache(tmp_path: Path) -> AsyncIterator[ClassicMaster]:
    async with ClassicMaster(tmp_path / "apache", 1000) as apache:
        apache.send(600)
        yield apache


@pytest.fixture
def make(tmp_path: Path, apache: ClassicMaster) -> Make:
    """Makes brokers on one store that follow, unless that is changed."""

    def make(root: Path | None = None, **settings: Any) -> Broker:
        given = {
            "storePathRootDir": str(root or tmp_path / "store"),
            "followMaster": apache.address,
            "followTablesInterval": "10",
            "flushIntervalCommitLog": "10",
            **settings,
        }
        return Broker(build_config(TEMPORARY_SETTINGS | given))

    return make


def follower_of(broker: Broker) -> SlaveFollower:
    assert broker.follower is not None
    return broker.follower


async def all_of(broker: Broker, apache: ClassicMaster) -> None:
    """Return when all that the master has is in the queues of the copy."""
    await until(lambda: broker.store.dispatch.offset == apache.log.end)


async def taken_over(broker: Broker) -> None:
    await until(lambda: broker.follower is None and broker.why_not_ready() is None)


async def test_it_has_what_its_master_has(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        await all_of(broker, apache)
        assert broker.store.reading.queue_range("topic-0", 0) == (0, 600)
        assert broker.tables.offsets.get("topic-0", "billing", 0) == 3
        assert broker.tables.delays.table.offsets == {3: 4}
        follower = follower_of(broker)
        assert (follower.behind_bytes, follower.is_copying) == (0, True)
        assert follower.state() == f"following {apache.address}, 0 bytes behind"
        assert broker.why_not_ready() == follower.state()
        assert b"rockhopper_following_behind_bytes 0\n" in (await broker.metrics()).body


async def test_other_settings_of_the_master_are_logged(apache: ClassicMaster, make: Make) -> None:
    apache.settings["messageDelayLevel"] = "1s 5s"
    apache.settings["timerPrecisionMs"] = "1000"
    with capture_logs() as lines:
        async with make():
            pass
    named = {line["setting"]: line["theirs"] for line in lines if "setting" in line}
    assert named == {"messageDelayLevel": "1s 5s"}


async def test_it_refuses_clients(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        answer = await send(broker.address, "topic-0", b"new")
        assert answer.code == 2
        assert "[REJECTREQUEST]" in str(answer.remark)


async def test_topics_come_before_their_messages(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        await all_of(broker, apache)
        apache.topics["batches"] = {"attributes": {"queue.type": "BatchCQ"}}  # type: ignore[dict-item]
        apache.log.add(topic="batches", queue_id=0, queue_offset=0)
        await apache.tell()
        await all_of(broker, apache)
        queue = broker.store.opened.queues.get("batches", 0)
        assert queue is not None
        assert queue.IS_BATCH


async def test_it_goes_on_after_a_stop_and_after_a_kill(
    apache: ClassicMaster, make: Make, tmp_path: Path
) -> None:
    async with make() as broker:
        await all_of(broker, apache)
    async with make() as broker:
        apache.send(7)
        await apache.tell()
        await all_of(broker, apache)
        killed = copy_killed(broker.config.store.root, tmp_path / "killed")
    apache.send(7)
    async with make(killed) as broker:
        await all_of(broker, apache)
        assert broker.store.reading.queue_range("topic-0", 0) == (0, 614)


async def test_files_that_the_master_deleted_go(apache: ClassicMaster, make: Make) -> None:
    async with make(cleanResourceInterval="100") as broker:
        await all_of(broker, apache)
        apache.min_offset = FILE_SIZE_BYTES
        await until(lambda: broker.store.log.min_offset == FILE_SIZE_BYTES)


async def test_a_takeover_waits_until_nobody_writes(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        await all_of(broker, apache)
        with pytest.raises(FollowError, match=r"still accepts messages.*brokerPermission -v 4"):
            await broker.takeover.start(follower_of(broker), force=False)
        assert broker.follower is not None


async def test_a_takeover_waits_until_all_is_here(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        await all_of(broker, apache)
        end = apache.log.end
        apache.settings["brokerPermission"] = "4"
        apache.send(1)
        with pytest.raises(FollowError, match=f"offset {apache.log.end} and the copy at {end}"):
            await broker.takeover.start(follower_of(broker), force=False)


async def test_after_a_takeover_it_is_a_broker_as_any(apache: ClassicMaster, make: Make) -> None:
    broker = make()
    async with broker:
        address = broker.address
        apache.settings["brokerPermission"] = "4"
        await until(lambda: broker.store.log.written_offset == apache.log.end)
        await broker.takeover.start(follower_of(broker), force=False)
        with pytest.raises(FollowError, match="taking over already"):
            await broker.takeover.start(follower_of(broker), force=True)
        await taken_over(broker)
        assert broker.address == address
        assert broker.config.store.flush_disk_type.value == "ASYNC_FLUSH"
        assert (await send(address, "topic-0", b"new")).code == 0
        assert broker.tables.offsets.get("topic-0", "billing", 0) == 3
        (first, *_) = await pull(address, "topic-0")
        assert first.body == b"body 0"
    assert following_file.read_followed_master(StoreLayout.from_config(broker.config.store)) is None
    async with make(followMaster="") as again:
        assert again.store.reading.queue_range("topic-0", 0)[1] in (600, 601)


async def test_it_takes_over_by_force_without_its_master(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        await all_of(broker, apache)
        apache.server.handlers.clear()
        with pytest.raises(FollowError, match="cannot query the master"):
            await broker.takeover.start(follower_of(broker), force=False)
        await broker.takeover.start(follower_of(broker), force=True)
        await taken_over(broker)
        assert broker.store.reading.queue_range("topic-0", 0) == (0, 600)


async def test_started_without_following_it_takes_over_if_it_may(
    apache: ClassicMaster, make: Make
) -> None:
    async with make() as broker:
        await all_of(broker, apache)
    with pytest.raises(StartError, match=r"this store follows another.*still accepts messages"):
        await make(followMaster="").start()
    apache.send(5)
    apache.settings["brokerPermission"] = "4"
    async with make(followMaster="") as broker:
        assert broker.follower is None
        assert broker.store.reading.queue_range("topic-0", 0) == (0, 605)
        assert (await send(broker.address, "topic-0", b"new")).code == 0
    async with make(followMaster="") as broker:
        assert broker.why_not_ready() is None


async def test_started_so_by_force_it_asks_nobody(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        await all_of(broker, apache)
    apache.server.handlers.clear()
    with pytest.raises(StartError, match=r"cannot query the master.*forceTakeover=true"):
        await make(followMaster="").start()
    async with make(followMaster="", forceTakeover="true") as broker:
        assert broker.store.reading.queue_range("topic-0", 0) == (0, 600)


async def test_a_store_of_its_own_follows_nobody(make: Make) -> None:
    async with make(followMaster="") as broker:
        await send(broker.address, "orders", b"mine")
    with pytest.raises(StartError, match="belongs to a broker and is not a copy"):
        await make().start()


async def test_it_cannot_follow_who_does_not_answer(make: Make) -> None:
    with pytest.raises(StartError, match=r"cannot query the master at 127\.0\.0\.1:1"):
        await make(followMaster="127.0.0.1:1").start()


async def test_a_longer_copy_is_refused_at_the_start(apache: ClassicMaster, make: Make) -> None:
    async with make() as broker:
        await all_of(broker, apache)
    end, apache.log.end = apache.log.end, 5000
    with pytest.raises(
        StartError, match=f"ends at offset {end}, beyond the end of the master's log at 5000"
    ):
        await make().start()


async def test_a_damaged_copy_is_refused(apache: ClassicMaster, make: Make, tmp_path: Path) -> None:
    async with make() as broker:
        await all_of(broker, apache)
        killed = copy_killed(broker.config.store.root, tmp_path / "killed")
    with (killed / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(apache.log.offsets[100])
        file.write(bytes(50))
    with pytest.raises(StartError, match="is damaged between offsets"):
        await make(killed).start()


async def test_another_name_than_the_masters_is_warned_of(
    apache: ClassicMaster, make: Make
) -> None:
    with capture_logs() as lines:
        async with make(brokerName="other"):
            pass
    assert any("brokerName and brokerClusterName differ" in line["event"] for line in lines)


async def test_tables_that_cannot_be_copied_are_told_once(
    apache: ClassicMaster, make: Make
) -> None:
    async with make() as broker:
        await all_of(broker, apache)
        apache.topics = []  # type: ignore[assignment]
        with capture_logs() as lines:
            await until(lambda: "cannot be read" in follower_of(broker).state())
            await until(lambda: len(apache.server.requests_of(21)) > 5)
        assert len([line for line in lines if line["log_level"] == "error"]) == 1
        apache.topics = {}
        await until(lambda: "cannot" not in follower_of(broker).state())
