"""A store of Apache's broker opened by ours: what waits in it goes on, or the store is refused."""

import asyncio
import time
from pathlib import Path

import pytest

from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.interop.apache import SMALL_FILES
from tests.interop.conftest import Launcher, Server
from tests.interop.processes import ProcessError
from tests.interop.test_following import until
from tests.support.direct import ask, send, send_fields
from tests.support.hang import HANG_S
from tests.support.popping import check_points, pop_fields

pytestmark = pytest.mark.interop

GROUP, TOPIC = "poppers", "Popped"
SETTINGS = {
    **SMALL_FILES,
    "brokerName": "shared",
    "flushConsumerOffsetInterval": "300",
    "brokerClusterName": "DefaultCluster",
}
# So long that none is visible again by itself, however slow the machine is.
INVISIBLE_MS = 3_600_000


class Popper:
    """A consumer that remembers what it must say of a message, whatever broker it asks."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.infos: dict[int, str] = {}

    async def _ask(self, code: Code, fields: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        assert self.server is not None
        answer = await ask(self.server.broker_address, code, fields)
        return answer.code, answer.ext or {}, answer.body

    async def pop(self, count: int, invisible_ms: int) -> list[StoredMessage]:
        """Pop, waiting a little."""
        assert self.server is not None
        fields = pop_fields(
            consumerGroup=GROUP,
            topic=TOPIC,
            maxMsgNums=count,
            invisibleTime=invisible_ms,
            pollTime=500,
            bornTime=int(time.time() * 1000),
        )
        answer = await ask(self.server.broker_address, Code.POP_MESSAGE, fields)
        if answer.code != ResponseCode.SUCCESS:
            return []
        self.infos |= check_points(answer)
        return list(decode_messages(answer.body))

    async def settle(self, offset: int, code: Code = Code.ACK_MESSAGE, **more: str) -> int:
        """Acknowledge, or change the invisible time."""
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "offset": str(offset),
            "extraInfo": self.infos[offset].replace("broker-a", "shared"),
        }
        return (await self._ask(code, fields | more))[0]

    async def pop_until(self, wanted: set[bytes]) -> list[StoredMessage]:
        """Everything that comes until all of *wanted* have."""
        found: list[StoredMessage] = []
        async with asyncio.timeout(HANG_S):
            while not wanted <= {message.body for message in found}:
                found += await self.pop(32, INVISIBLE_MS)
        return found


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def pop_under_apache(popper: Popper, server: Server) -> None:
    """Of twelve messages eight are popped, four at a time, and one of each four acknowledged."""
    popper.server = server

    async def is_created() -> bool:
        return (await send(server.broker_address, TOPIC, b"m00")).code == ResponseCode.SUCCESS

    await until(is_created, bool)
    for number in range(1, 12):
        await send(server.broker_address, TOPIC, b"m%02d" % number)
    assert bodies(await popper.pop(4, INVISIBLE_MS)) == [b"m00", b"m01", b"m02", b"m03"]
    assert bodies(await popper.pop(4, INVISIBLE_MS)) == [b"m04", b"m05", b"m06", b"m07"]
    for offset in (0, 5):
        assert await popper.settle(offset) == ResponseCode.SUCCESS

    async def saved() -> str:
        path = server.store / "config" / "consumerOffset.json"
        return path.read_text() if path.exists() else ""

    await until(saved, lambda text: f'"{TOPIC}@{GROUP}":{{0:8' in "".join(text.split()))


async def check_under_ours(popper: Popper, server: Server) -> None:
    popper.server = server
    # Late: acknowledged by what Apache's broker had said of it.
    assert await popper.settle(4) == ResponseCode.SUCCESS
    assert await popper.settle(4) == ResponseCode.SUCCESS
    for offset in (1, 2, 3, 6):
        changed = await popper.settle(offset, Code.CHANGE_MESSAGE_INVISIBLETIME, invisibleTime="0")
        assert changed == ResponseCode.SUCCESS
    found = await popper.pop_until({b"m01", b"m02", b"m03", b"m06", b"m11"})
    assert bodies(found) == [b"m01", b"m02", b"m03", b"m06", b"m08", b"m09", b"m10", b"m11"]
    again = {message.body for message in found if message.reconsume_times == 1}
    assert again == {b"m01", b"m02", b"m03", b"m06"}
    for offset in (8, 9, 10):
        assert await popper.settle(offset) == ResponseCode.SUCCESS


@pytest.mark.parametrize("is_killed", [False, True], ids=["clean-stop", "kill-9"])
async def test_what_was_popped_and_not_acknowledged_goes_on_and_goes_back(
    jdk: None, launch: Launcher, tmp_path: Path, is_killed: bool
) -> None:
    settings = {**SETTINGS, "storePathRootDir": str(tmp_path / "store")}
    popper = Popper()
    apache = launch.apache(settings, topics=[f"{TOPIC}:1"])
    await pop_under_apache(popper, apache)
    apache.kill() if is_killed else apache.stop()
    ours = launch.rockhopper(settings)
    await check_under_ours(popper, ours)
    ours.kill() if is_killed else ours.stop()
    popper.server = launch.apache({**settings, "enableRetryTopicV2": "true"})
    # In flight when ours ended: m07 since Apache's time, m11 and the redelivered since ours.
    await popper.pop_until({b"m07", b"m11", b"m01", b"m02", b"m03", b"m06"})


async def test_a_takeover_brings_what_was_popped_from_the_master(
    jdk: None, launch: Launcher
) -> None:
    popper = Popper()
    master = launch.apache({**SETTINGS, "brokerRole": "ASYNC_MASTER"}, topics=[f"{TOPIC}:1"])
    follow = {**SETTINGS, "followMaster": master.broker_address, "followTablesInterval": "300"}
    ours = launch.rockhopper(follow)
    await pop_under_apache(popper, master)
    async with Admin(master.nameserver) as admin:
        await admin.update_broker_config(master.broker_address, {"brokerPermission": "4"})

        async def has_taken_over() -> bool:
            try:
                await admin.take_over(ours.broker_address)
            except Exception:
                return "followedMaster" not in await admin.broker_status(ours.broker_address)
            return True

        await until(has_taken_over, bool)
    master.stop()

    async def serves() -> bool:
        return (await ask(ours.broker_address, Code.GET_ALL_TOPIC_CONFIG)).code == 0

    await until(serves, bool)
    await check_under_ours(popper, ours)
    ours.stop()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"storeType": "defaultRocksDB"}, "the queues of this store in RocksDB"),
        ({"configManagerVersion": "v2"}, "topics, groups and offsets of this store in RocksDB"),
        ({"timerRocksDBEnable": "true"}, "timed messages of this store in RocksDB"),
        (
            {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"},
            "messages popped and not acknowledged of this store in RocksDB",
        ),
    ],
    ids=["queues", "tables", "timers", "pops"],
)
async def test_a_store_with_a_part_in_rocksdb_is_refused(
    jdk: None, launch: Launcher, settings: dict[str, str], what: str
) -> None:
    apache = launch.apache({**SETTINGS, **settings}, topics=[f"{TOPIC}:1"])
    due_ms = int(time.time() * 1000) + 600_000
    timed = {"properties": f"UNIQ_KEY\x01one\x02TIMER_DELIVER_MS\x01{due_ms}\x02"}
    for fields in ({}, timed):
        sent = await ask(
            apache.broker_address, Code.SEND_MESSAGE, send_fields(TOPIC) | fields, b"m"
        )
        assert sent.code == ResponseCode.SUCCESS, sent.remark
    popper = Popper()
    popper.server = apache
    await popper.pop(1, 60_000)
    await asyncio.sleep(1.5)
    apache.stop()
    with pytest.raises(ProcessError, match=what):
        launch.rockhopper({**SETTINGS, "storePathRootDir": str(apache.store)})
