"""`rockhopper ha switch`, `reseed`, `forget` and `elect --unclean`, on a set of brokers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.replica_set import ReplicaSet
from tests.support.turns import until


@pytest.fixture
async def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ReplicaSet]:
    async with ReplicaSet(tmp_path, monkeypatch) as replicas:
        await replicas.start(1, 2, 3)
        await replicas.master(in_sync=3)
        yield replicas


async def test_the_set_is_switched_and_what_is_refused_says_why(three: ReplicaSet) -> None:
    line = CommandLine("127.0.0.1:1")
    master = await three.master(in_sync=3)
    other = next(number for number in three.brokers if number != master)
    there, elsewhere = three.brokers[master].address, three.brokers[other].address
    done = await line.run("ha", "switch", "--broker", there, "--to", str(other))
    assert (done.code, done.out) == (0, f"replica {other} leads\n")
    await three.master(in_sync=3, but=master)
    await until(lambda: three.member(master).why_not_ready() is None)
    again = await line.run("ha", "switch", "-b", there)
    assert again.code == 1
    assert "this replica does not lead: ask the master" in again.err
    unclean = await line.run("ha", "elect", "--unclean", "-b", there, "--yes")
    assert f"replica {other} leads: an unclean election is not needed" in unclean.err
    kept = await line.run("ha", "forget", "-b", elsewhere, str(master))
    assert f"replica {master} is in sync" in kept.err
    seeded = await line.run("ha", "reseed", "-b", there, "--yes")
    assert seeded.out == "this replica is seeded again by its master\n"
    await three.master(in_sync=3)


async def test_an_unclean_election_needs_the_replica_it_is_for() -> None:
    refused = await CommandLine("127.0.0.1:1").run("ha", "elect", "--unclean")
    assert refused.code == 2
    assert "--broker" in refused.err
    refused = await CommandLine("127.0.0.1:1").run("ha", "elect", "--name", "a")
    assert "--engine, --name and --id are needed" in refused.err
