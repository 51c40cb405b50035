"""Whom an operator lets lead: that one and no other, and never one that lacks something."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rockhopper.broker.replication.election.actions import Alter
from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.engine import Engine
from rockhopper.broker.replication.engines.engines import engine_for
from rockhopper.broker.replication.engines.static.electing import main
from rockhopper.broker.settings.config_file import build_config
from tests.support.engine_contract import FIRST, LEADER_A, LEADER_B, STATE, A, over

pytestmark = pytest.mark.usefixtures("held_clock")


def elect(directory: Path, replica_id: int) -> tuple[int, str]:
    """Exit code and what was said."""
    command = ["--engine", f"static://{directory}", "--name", "a", "--id", str(replica_id)]
    result = CliRunner().invoke(main, command)
    return result.exit_code, result.output


def engine_of(directory: Path) -> Engine:
    texts = {"haEngine": f"static://{directory}", "haReplicaId": "1", "brokerName": "a"}
    return engine_for(build_config(texts), lambda: 1000.0)


async def test_nobody_leads_before_an_operator_says_so(tmp_path: Path) -> None:
    (tmp_path / "DefaultCluster" / "a").mkdir(parents=True)
    engine = engine_of(tmp_path)
    assert (await engine.read()).designated == 0
    assert await engine.campaign(FIRST, LEADER_A) == (SwapOutcome.REFUSED, None)
    await engine.close()


async def test_who_is_designated_leads_and_then_another(tmp_path: Path) -> None:
    assert elect(tmp_path, 1) == (0, "replica 1 of a may lead; no other may\n")
    engine = engine_of(tmp_path)
    assert (await engine.read()).designated == 1
    assert await engine.campaign(FIRST, LEADER_B) == (SwapOutcome.REFUSED, None)
    outcome, view = await engine.campaign(FIRST, LEADER_A)
    assert outcome is SwapOutcome.DONE
    assert view
    assert (await engine.campaign(over(view), LEADER_B))[0] is SwapOutcome.REFUSED

    code, told = elect(tmp_path, 2)
    assert (code, told) == (
        0,
        "replica 2 of a leads as soon as replica 1 (epoch 1) stops or hands over\n",
    )
    assert await engine.renew(LEADER_A, view.version) is SwapOutcome.DONE
    assert (await engine.campaign(over(view), LEADER_B))[0] is SwapOutcome.DONE
    await engine.close()


async def test_who_lacks_something_is_not_elected(tmp_path: Path) -> None:
    elect(tmp_path, 1)
    engine = engine_of(tmp_path)
    _, view = await engine.campaign(FIRST, LEADER_A)
    assert view
    await engine.alter(Alter(replace(STATE, in_sync=frozenset({A})), view.version))
    code, told = elect(tmp_path, 2)
    assert code == 1
    assert "replica 2 is not in sync" in told
    assert "elect one of 1" in told
    assert (await engine.read()).designated == 1
    await engine.close()


def test_a_directory_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    code, told = elect(tmp_path / "gone", 1)
    assert code == 1
    assert "is not a directory: mount" in told
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("engine", ["etcd://h1:2379", "static://relative", "/mnt"])
def test_an_engine_that_elects_by_itself_is_told_nothing(engine: str) -> None:
    result = CliRunner().invoke(main, ["--engine", engine, "--id", "1"])
    assert result.exit_code == 2
    assert "elect a master by themselves" in result.output
