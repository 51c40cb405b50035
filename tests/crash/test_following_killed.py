"""A daemon that follows, killed in the middle of frames again and again."""

from pathlib import Path

import pytest

from tests.support.classic_master import FILE_SIZE_BYTES, ClassicMaster
from tests.support.daemon import Daemon

pytestmark = pytest.mark.costly

MESSAGES, KILLS = 2000, 4


async def test_kills_in_the_middle_of_frames_cost_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with ClassicMaster(tmp_path / "master", frame_size_bytes=333) as master:
        options = ("--set", f"followMaster={master.address}")
        for _ in range(KILLS):
            start = master.log.end
            master.send(MESSAGES)
            async with Daemon(store, *options) as daemon:
                await master.reported_from((start + master.log.end) // 2)
                await daemon.kill()
        end = master.log.end
        assert end > 3 * FILE_SIZE_BYTES
        assert len(master.first_reports) == KILLS
        async with Daemon(store, *options):
            await master.reported_from(end)
        for file in master.log.commit_log.iterdir():
            assert (store / "commitlog" / file.name).read_bytes() == file.read_bytes()
        options = ("--set", "forceTakeover=true")
        async with Daemon(store, *options) as daemon:
            recovered = [line for line in daemon.lines if line["event"] == "store recovered"]
            assert [line["log_end"] for line in recovered] == [end]
            assert not [line for line in daemon.lines if "damaged" in line["event"]]
