"""`rockhopper broker` against our broker."""

from rockhopper.broker import Broker
from rockhopper.broker.observing.version import own_version
from tests.support.command_line import CommandLine


async def test_a_broker_tells_its_state_and_settings(broker: Broker, shell: CommandLine) -> None:
    (status,) = (await shell.run("broker", "status", "--json")).objects
    assert (status["broker"], status["brokerVersionDesc"]) == ("broker-a", "V5_3_3")
    both = f"V5_3_3 (Rockhopper {own_version()})"
    assert status["rockhopperVersion"] == own_version()
    assert both in (await shell.run("broker", "status")).out
    assert both in (await shell.run("cluster")).out
    changed = await shell.run("broker", "config", "defaultTopicQueueNums=3")
    assert (changed.code, changed.out) == (0, "defaultTopicQueueNums=3\n")
    unknown = await shell.run("broker", "config", "noSuchSetting")
    assert (unknown.code, unknown.err) == (1, "rockhopper: broker-a has no setting noSuchSetting\n")
    (listed,) = (await shell.run("cluster", "--json")).objects
    assert (listed["address"], listed["error"]) == (broker.address, None)
    assert broker.address in (await shell.run("cluster")).out
