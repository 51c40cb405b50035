"""Where a run was made."""

import platform

from benchmarks import origin
from tests.support.bench_runs import ORIGIN


def test_the_cpu_is_what_the_kernel_calls_it() -> None:
    assert origin.cpu_model("processor\t: 0\nmodel name\t: A CPU: fast\n") == "A CPU: fast"


def test_a_cpu_without_a_name_is_called_by_its_architecture() -> None:
    assert origin.cpu_model("processor\t: 0\n") == platform.machine()


def test_a_run_of_here_and_now_knows_its_commit_and_its_peer() -> None:
    found = origin.here_and_now("5.5.0")
    assert found.peer_version == "5.5.0"
    assert found.cores > 0
    assert found.commit == "" or len(found.commit) == 40


def test_people_are_told_whether_the_commit_is_what_ran() -> None:
    assert "commit 0123456789;" in ORIGIN.text()
