"""Progress: offsets at the brokers, and in a file for broadcast."""

import asyncio
import pwd
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from rockhopper.client import BrokerUnreachableError
from rockhopper.client.consuming import progress
from rockhopper.client.consuming.progress import BrokerProgress, LocalProgress
from rockhopper.client.queues import MessageQueue
from tests.support.hang import HANG_S

ZERO = MessageQueue("orders", "a", 0)
ONE = MessageQueue("orders", "a", 1)


class Offsets:
    """In place of QueueOffsets: what a broker has stored."""

    def __init__(self) -> None:
        self.stored: dict[MessageQueue, int] = {}
        self.is_up = True

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        self._check(group)
        return self.stored.get(queue)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._check(group)
        self.stored[queue] = offset

    def _check(self, group: str) -> None:
        assert group == "billing"
        if not self.is_up:
            raise BrokerUnreachableError("away")


async def test_what_could_not_be_committed_counts_as_if_it_had_been() -> None:
    offsets = Offsets()
    progress = BrokerProgress(offsets, "billing")  # type: ignore[arg-type]
    await progress.store(ZERO, 5)
    offsets.is_up = False
    progress.remember(ZERO, 9)
    with pytest.raises(BrokerUnreachableError):
        await progress.load(ZERO)
    offsets.is_up = True
    assert await progress.load(ZERO) == 9
    assert await progress.load(ZERO) == 9
    assert offsets.stored == {ZERO: 9}


async def test_what_others_have_committed_since_counts_more() -> None:
    offsets = Offsets()
    progress = BrokerProgress(offsets, "billing")  # type: ignore[arg-type]
    progress.remember(ZERO, 9)
    offsets.stored[ZERO] = 12
    assert await progress.load(ZERO) == 12
    offsets.stored[ZERO] = 3
    assert await progress.load(ZERO) == 3
    assert await progress.load(ONE) is None


async def test_broadcast_offsets_are_in_a_file_that_java_can_read(tmp_path: Path) -> None:
    progress = LocalProgress("billing", tmp_path)
    await progress.open()
    await progress.store(ONE, 7)
    await progress.store(ZERO, 5)
    await progress.close()
    (path,) = tmp_path.glob("*@DEFAULT/billing/offsets.json")
    assert path == progress.path
    assert path.read_bytes() == (
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:5,'
        b'{"brokerName":"a","queueId":1,"topic":"orders"}:7}}'
    )
    again = LocalProgress("billing", tmp_path)
    await again.open()
    assert await again.load(ONE) == 7
    await again.close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["lock", "offsets.json"]


async def test_each_broadcast_consumer_of_a_machine_has_its_own_file(tmp_path: Path) -> None:
    one, two = LocalProgress("billing", tmp_path), LocalProgress("billing", tmp_path)
    await one.open()
    await two.open()
    await one.store(ZERO, 1)
    await two.store(ZERO, 2)
    await one.close()
    three = LocalProgress("billing", tmp_path)
    await three.open()
    assert (three.path, await three.load(ZERO)) == (one.path, 1)
    assert two.path != one.path
    await two.close()
    await three.close()


@pytest.mark.parametrize("group", ["..", ".", ""])
async def test_the_file_of_a_broadcast_consumer_is_below_its_directory(
    tmp_path: Path, group: str
) -> None:
    with pytest.raises(ValueError, match="not the path"):
        await LocalProgress(group, tmp_path).open()
    assert not list(tmp_path.rglob("*"))


async def test_a_damaged_file_is_reported_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    progress = LocalProgress("billing", tmp_path)
    await progress.open()
    assert progress.path is not None
    progress.path.write_bytes(b"{")
    await progress.close()
    again = LocalProgress("billing", tmp_path)
    await again.open()
    assert await again.load(ZERO) is None
    assert "cannot be read" in caplog.text
    await again.store(ZERO, 3)
    await again.close()


async def test_what_is_claimed_while_closing_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = LocalProgress("g", tmp_path)
    claim = progress._claim_instance
    has_begun, may_go_on = threading.Event(), threading.Event()

    def claim_late(root: Path) -> Path:
        has_begun.set()
        may_go_on.wait(HANG_S)
        return claim(root)

    monkeypatch.setattr(progress, "_claim_instance", claim_late)
    opening = asyncio.create_task(progress.open())
    await asyncio.to_thread(has_begun.wait, HANG_S)
    opening.cancel()
    await asyncio.wait([opening])
    await progress.close()
    may_go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    successor = LocalProgress("g", tmp_path)
    assert successor.claim().parent.parent.name.endswith("@DEFAULT")
    await successor.close()


@pytest.mark.parametrize("home", ["", "a file", "/proc"])
async def test_a_home_that_cannot_be_used_is_a_sentence_that_names_the_option(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_who: object) -> NoReturn:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    if home == "a file":
        home = str(tmp_path / "file")
        Path(home).touch()
    if home:
        monkeypatch.setenv("HOME", home)
    else:
        monkeypatch.delenv("HOME", raising=False)
    with pytest.raises(OSError, match="pass offsets_directory"):
        await LocalProgress("billing").open()
    elsewhere = LocalProgress("billing", tmp_path / "elsewhere")
    await elsewhere.open()
    await elsewhere.close()


async def test_the_file_is_written_once_for_all_queues_of_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, written = vars(progress)["_replace"], []

    def counted(path: Path, text: bytes) -> None:
        written.append(text)
        replace(path, text)

    monkeypatch.setattr(progress, "_replace", counted)
    ours = LocalProgress("billing", tmp_path)
    await ours.open()
    queues = [MessageQueue("orders", "a", number) for number in range(1000)]
    for offset in (1, 2):
        await asyncio.gather(*(ours.store(queue, offset) for queue in queues))
    await ours.close()
    assert len(written) == 2
    again = LocalProgress("billing", tmp_path)
    await again.open()
    assert {await again.load(queue) for queue in queues} == {2}
    await again.close()


async def test_what_a_later_release_keeps_in_the_file_stays_there(tmp_path: Path) -> None:
    first = LocalProgress("billing", tmp_path)
    await first.open()
    assert first.path is not None
    offsets = b'{{"brokerName":"a","queueId":0,"topic":"orders"}:5}'
    first.path.write_bytes(b'{"offsetTable":' + offsets + b',"trail":{"a":[{"n":1}]}}')
    await first.close()

    earlier = LocalProgress("billing", tmp_path)
    await earlier.open()
    assert await earlier.load(ZERO) == 5
    await earlier.store(ZERO, 6)

    assert earlier.path is not None
    assert earlier.path.read_bytes().endswith(b':6},"trail":{"a":[{"n":1}]}}')
    await earlier.close()
