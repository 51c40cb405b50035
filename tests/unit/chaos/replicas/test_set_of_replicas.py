"""What a replica's process said and ended with is kept over all its lives."""

import signal
import sys
from pathlib import Path

import pytest

from tests.chaos.replicas.machines import Machine
from tests.chaos.replicas.set_of_replicas import ReplicaProcess, host_names, leaders

ELECTED = '{"event": "this replica leads", "epoch": %d}'


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaProcess:
    machine = Machine(tmp_path / "machine", has_clock=False)
    log = tmp_path / "log"
    return ReplicaProcess(1, machine, [sys.executable, "-c", "0"], tmp_path, log, "", "")


def test_leaders_are_those_who_say_that_they_were_elected(replica: ReplicaProcess) -> None:
    lines = [ELECTED % 3, "Traceback", '{"event": "following", "epoch": 4}', ELECTED % 5]
    replica.log.write_text("\n".join(lines))
    assert list(leaders([replica])) == [(3, 1), (5, 1)]
    assert [line["event"] for line in replica.lines()][1] == "Traceback"


def test_an_end_of_its_own_is_noted_and_a_kill_is_not(replica: ReplicaProcess) -> None:
    replica.start()
    assert replica.process
    assert replica.pid == replica.process.pid
    replica.process.wait()
    replica.start()
    assert replica.exits == [0]
    replica.process.wait()
    replica.kill()
    assert replica.exits == [0, 0]
    assert replica.pid is None
    replica.command = [sys.executable, "-c", "import signal; signal.pause()"]
    replica.start()
    replica.kill()
    replica.signal(signal.SIGCONT)
    assert replica.exits == [0, 0]


def test_what_is_started_twice_runs_once(replica: ReplicaProcess) -> None:
    replica.command = [sys.executable, "-c", "import signal; signal.pause()"]
    replica.start()
    first = replica.pid
    replica.start()
    assert replica.pid == first
    replica.kill()


def test_a_replica_sees_the_clock_of_its_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", has_clock=True)
    shown = [sys.executable, "-c", "import os; print(os.environ['FAKETIME_NO_CACHE'])"]
    replica = ReplicaProcess(1, machine, shown, tmp_path, tmp_path / "log", "", "")
    replica.start()
    assert replica.process
    replica.process.wait()
    assert "1" in [line["event"] for line in replica.lines()]


def test_every_process_has_a_host() -> None:
    assert host_names(2) == ["r1", "r2", "r3", "e0", "e1"]
