"""The scripts of `rockhopper completion` in the shells that they are for."""

import asyncio
import shutil
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from rockhopper.broker import Broker
from rockhopper.broker.cli import main
from rockhopper.client import Admin
from tests.support.shells import completed

pytestmark = pytest.mark.costly

ORDERS = "rockhopper pull -n PLACE orders"
RESET = "rockhopper group reset -n PLACE -t orders billing"
LINES = {
    "rockhopper cont": "rockhopper context ",
    "rockhopper pull -n PLACE or": f"{ORDERS} ",
    f"{ORDERS} --queue 10": f"{ORDERS} --queue 10 ",
    f"{ORDERS} --queue=10": f"{ORDERS} --queue=10 ",
    f"{ORDERS} --queue broker-a:10": f"{ORDERS} --queue broker-a:10 ",
    f'{ORDERS} --grep "a b" --queue=10': f'{ORDERS} --grep "a b" --queue=10 ',
    f"{RESET} --to ear": f"{RESET} --to earliest ",
    f"{RESET} --to=ear": f"{RESET} --to=earliest ",
    "rockhopper-broker store reb": "rockhopper-broker store rebuild ",
    "rockhopper-broker --strict --log-level=deb": "rockhopper-broker --strict --log-level=debug ",
    "rockhopper-broker --set defaultTopicQ": "rockhopper-broker --set defaultTopicQueueNums=",
    "rockhopper-broker --set autoCreateTopic=of": "rockhopper-broker --set autoCreateTopic=off ",
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_lines_are_completed(shell: str, broker: Broker, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=11)
    lines = {
        begun.replace("PLACE", broker.nameserver): ended.replace("PLACE", broker.nameserver)
        for begun, ended in LINES.items()
    }
    found = await asyncio.to_thread(completed, shell, list(lines), tmp_path)
    assert found == list(lines.values())


@pytest.mark.parametrize(("begun", "ended"), [("x", r"x\|y "), ("'x", "'x|y' ")])
async def test_what_a_shell_would_run_is_quoted(
    broker: Broker, tmp_path: Path, begun: str, ended: str
) -> None:
    line = f"rockhopper pull -n {broker.nameserver} "
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("x|y")
    assert await asyncio.to_thread(completed, "bash", [line + begun], tmp_path) == [line + ended]


@pytest.mark.parametrize(
    ("arguments", "begun", "words"),
    [
        (["--set"], "haSplice", ["haSpliceTime="]),
        (["--set"], "longPollingEnable=", ["longPollingEnable=true", "longPollingEnable=false"]),
        (["--set"], "autoCreateTopic=on-s", ["autoCreateTopic=on-send"]),
        (["--set"], "brokerName=", []),
        ([], "--name", ["--namesrv-addr", "--name", "--namesrv-port"]),
        (["store"], "re", ["rebuild", "repair", "restore"]),
    ],
)
def test_the_broker_completes_settings_and_commands(
    arguments: list[str], begun: str, words: list[str]
) -> None:
    complete = ShellComplete(main, {}, "rockhopper-broker", "_ROCKHOPPER_BROKER_COMPLETE")
    assert [each.value for each in complete.get_completions(arguments, begun)] == words
