"""UnreachableBrokers: which brokers are asked whether they run, and how long that takes."""

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin
from rockhopper.client.admin.unreachable_brokers import UnreachableBrokers
from tests.support.hung import hanging


@pytest.mark.parametrize("is_asked", [True, False])
async def test_only_those_meant_are_asked_and_for_so_long(broker: Broker, is_asked: bool) -> None:
    unreachable = UnreachableBrokers(answer_within_s=0.2)
    settings = {"role": "broker", "brokerName": "broker-b", "namesrvAddr": broker.nameserver}
    async with Admin(broker.nameserver) as admin, Broker.temporary(settings) as other:
        await other.announce()
        async with hanging(other) as hung:
            found, there = await unreachable.leave_out(
                admin, lambda each: is_asked and each.name == "broker-b"
            )
            assert (len(found), there) == (is_asked, 0)
            assert hung.requests <= is_asked
            assert len(await admin.masters()) == 2 - is_asked
    assert all("within 0.2 s" in each.problem for each in found)
