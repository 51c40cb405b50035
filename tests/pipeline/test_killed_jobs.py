"""Jobs whose driver is killed with kill -9, Java and all, go on and do nothing twice."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.pipeline_data import write_store
from rockhopper.pipeline import jobs
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.spark import stop_own_session
from tests.support.growing_directories import count_files
from tests.support.pipeline_broker import PipelineBroker
from tests.support.process_tree import command_line, descendants

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]
MESSAGES = 200_000


def run_and_kill(arguments: list[str], is_time: Callable[[], bool]) -> bool:
    """Run a job until it is time to kill it; False if it was done before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rockhopper.pipeline", *arguments, "--master", "local[2]"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not is_time():
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            continue
        return False
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


@pytest.mark.parametrize("victim", [pytest.param("java", marks=pytest.mark.long), "worker"])
def test_an_archive_one_of_whose_processes_is_killed(tmp_path: Path, victim: str) -> None:
    store, root = tmp_path / "store", tmp_path / "history"
    write_store(store, MESSAGES)
    arguments = ["archive", str(root), "--path", str(store), "--split-size", "8m"]
    staged = root / "_rockhopper" / "staging"

    process = subprocess.Popen(
        [sys.executable, "-m", "rockhopper.pipeline", *arguments], stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and count_files(staged, ".staged") == 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)
    command = b"SparkSubmit" if victim == "java" else b"pyspark.daemon"
    victims = [pid for pid in descendants(process.pid) if command in command_line(pid)]
    os.kill(victims[-1], signal.SIGKILL)
    said = process.communicate()[1]

    assert "Traceback" not in said
    if victim == "java":
        assert process.returncode == 1
        assert "the Java process that Spark runs in has ended" in said.splitlines()[-1]
        assert jobs.archive(root, path=store).rows == MESSAGES
    else:
        assert process.returncode == 0
        assert len(archived_offsets(root)) == MESSAGES


def archived_offsets(root: Path) -> list[int]:
    found: list[int] = []
    for file in Catalog(LocalFiles(root)).archived_files():
        found += pq.ParquetFile(root / file.path).read(["physOffset"])["physOffset"].to_pylist()
    return sorted(found)


def listed_files(root: Path) -> set[str]:
    names = (str(path.relative_to(root)) for path in root.glob("topic=*/date=*/*.parquet"))
    return set(names)


def test_an_archive(tmp_path: Path) -> None:
    store, root = tmp_path / "store", tmp_path / "history"
    record_bytes = write_store(store, MESSAGES) // MESSAGES
    moments: list[Callable[[], bool]] = [
        lambda: count_files(root / "_rockhopper" / "staging", ".staged") > 0,
        lambda: count_files(root / "_rockhopper" / "staging", ".staged") > 4,
        lambda: (root / "_rockhopper" / "intent.json").exists(),
    ]

    killed = [
        run_and_kill(["archive", str(root), "--path", str(store), "--split-size", "8m"], moment)
        for moment in moments
    ]
    result = jobs.archive(root, path=store)

    assert any(killed)
    assert archived_offsets(root) == [number * record_bytes for number in range(MESSAGES)]
    listed = {file.path for file in Catalog(LocalFiles(root)).archived_files()}
    assert listed_files(root) == listed
    assert jobs.archive(root, path=store).rows == 0
    assert result.run <= 2


@pytest.mark.long
def test_a_replay(tmp_path: Path) -> None:
    store, root = tmp_path / "store", tmp_path / "history"
    write_store(store, 30_000, 50)
    jobs.archive(root, path=store)

    with PipelineBroker() as broker:
        broker.create("copy", 4)

        def visible() -> int:
            ends = (broker.broker.store.reading.queue_range("copy", queue)[1] for queue in range(4))
            return sum(ends)

        arguments = ["replay", str(root), "--to", "copy", "-n", broker.nameserver, "--rate", "2000"]
        seen = []
        for _ in range(3):
            before = visible()
            assert run_and_kill(arguments, lambda: visible() > before)  # noqa: B023
            seen.append(visible())
        result = jobs.replay(root, nameserver=broker.nameserver, to="copy", master="local[2]")
        stop_own_session()

        assert seen == sorted(set(seen))
        assert result.resumed_at_batch >= 3
        copies = broker.stored("copy")
        assert len(copies) == 30_000
        origins = {
            (m.properties["RH_ORIGIN_TOPIC"], m.queue_id, m.properties["RH_ORIGIN_QUEUE_OFFSET"])
            for m in copies
        }
        assert len(origins) == 30_000
