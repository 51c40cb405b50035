"""Pop consumption across kill -9 of the real daemon."""

from pathlib import Path

import pytest

from rockhopper.protocol.codes import ResponseCode
from tests.support.daemon import Daemon
from tests.support.features import needs
from tests.support.popping import PopConsumer
from tests.support.raw_peer import RawPeer

pytestmark = [needs("pop"), pytest.mark.costly]


async def test_killed_broker_loses_and_repeats_nothing(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        consumer = PopConsumer(peer)
        await consumer.send(*(b"%d" % number for number in range(20)))
        returning = await consumer.pop(maxMsgNums=2, invisibleTime=1_000)
        messages = await consumer.pop(maxMsgNums=8, invisibleTime=3_600_000)
        for message in messages[::2]:
            assert (await consumer.ack(message)).code == ResponseCode.SUCCESS
        await daemon.kill()

    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        consumer = PopConsumer(peer)
        # What is still in flight can be acknowledged with what the old process said, and changed.
        assert (await consumer.ack(messages[1])).code == ResponseCode.SUCCESS
        for message in messages[3::2]:
            assert (await consumer.change(message, 1)).code == ResponseCode.SUCCESS
        found: list[int] = []
        while len(found) < len(returning) + 13:
            popped = await consumer.pop(pollTime=30_000)
            assert popped, f"only {len(found)} came"
            for message in popped:
                found.append(int(message.body))
                await consumer.ack(message)
        assert sorted(found) == [0, 1, 5, 7, 9, *range(10, 20)]
        assert await consumer.pop(pollTime=50) == []
        assert await daemon.stop() == 0

    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        assert await PopConsumer(peer).pop(pollTime=50) == []
