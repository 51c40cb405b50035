"""The state of pop, as a store that follows a RocketMQ master copies it."""

import json
from pathlib import Path

import pytest

from rockhopper.broker.features.pop.state import PopState
from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.name_server.followed_master import FollowError
from rockhopper.broker.replication.rocketmq.slave.table_copies import TableCopies
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol.codes import RequestCode

MODE = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 1}


class Copied:
    """The state of pop, and what copies a master's tables into it."""

    def __init__(self, root: Path) -> None:
        config = build_config({"storePathRootDir": str(root)})
        self.state = PopState(StoreLayout.from_config(config.store), lambda: 5)
        tables = Tables(config, BrokerClock(lambda: 5), {"pop": self.state})
        self.copies = TableCopies(tables, root / "timercheck")

    async def take(self, answer: bytes | None) -> None:
        """Copy what the master answers to request 402."""

        async def table_of(request: str) -> bytes | None:
            assert request == RequestCode.GET_ALL_MESSAGE_REQUEST_MODE.name
            return answer

        await self.copies.copy_of_features(table_of)


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


async def test_the_modes_of_a_master_are_taken_over(copied: Copied) -> None:
    await copied.take(json.dumps({"messageRequestModeMap": {"orders": {"g": MODE}}}).encode())
    mode = copied.state.request_modes.get("orders", "g")
    assert mode is not None
    assert mode.mode == "POP"


async def test_old_masters_have_no_modes(copied: Copied) -> None:
    await copied.take(None)
    assert copied.state.request_modes.get("orders", "g") is None


async def test_modes_that_cannot_be_read_are_named(copied: Copied) -> None:
    with pytest.raises(FollowError, match="the master's request modes cannot be read"):
        await copied.take(b"{}")
