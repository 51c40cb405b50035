"""Audits, rebuilds and searches of stores that whole brokers write, also killed ones."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rockhopper.client import Message, Producer
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.job import archive
from rockhopper.pipeline.jobs.auditing.job import audit
from rockhopper.pipeline.jobs.command_line import main
from rockhopper.pipeline.jobs.searching.job import search
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from tests.support.daemon import Daemon
from tests.support.derived_stores import queue_files, write_store
from tests.support.pipeline_broker import PipelineBroker
from tests.support.turns import until

pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as broker:
        broker.create("orders")
        broker.create("batches", attributes={"queue.type": "BatchCQ"})
        broker.send("orders", [f"order {n} of Zürich" for n in range(200)], tags="new", keys=["o"])
        broker.send("batches", [f"b{n}" for n in range(20)])
        broker.send("orders", ["paid 7"], tags="paid", keys=["order-7", "x"], queue=1)
        yield broker


def wait_until_flushed(broker: PipelineBroker, count: int) -> Any:
    """Audit until all is on disk: a running broker tells about once a second."""
    while True:
        result = audit(str(broker.broker.config.store.root), run=run_in_this_process)
        if result.record_count >= count:
            return result


def test_a_running_broker(broker: PipelineBroker) -> None:
    result = wait_until_flushed(broker, 202)

    assert result.is_live
    assert result.counts == {}, list(result.lines())


def test_search_over_the_network_and_in_files(broker: PipelineBroker) -> None:
    path = str(broker.broker.config.store.root)
    wanted: list[dict[str, Any]] = [{"key": "order-7"}, {"contains": "paid 7"}, {"tag": "paid"}]
    for options in wanted:
        live = search(nameserver=broker.nameserver, run=run_in_this_process, **options)
        files = search(path, run=run_in_this_process, **options)

        assert [one["body"] for one in live.messages] == ["paid 7"]
        assert [one["physOffset"] for one in files.messages] == [
            one["physOffset"] for one in live.messages
        ]
        assert live.messages[0]["place"].startswith("broker ")
    assert (
        len(
            search(
                nameserver=broker.nameserver, topics=["batches"], run=run_in_this_process
            ).messages
        )
        == 20
    )


def test_what_is_at_the_broker_and_in_an_archive_is_told_once(
    broker: PipelineBroker, tmp_path: Path
) -> None:
    wait_until_flushed(broker, 202)
    root = broker.broker.config.store.root
    archive(tmp_path / "history", path=root)

    found = search(
        nameserver=broker.nameserver,
        archive=str(tmp_path / "history"),
        key="order-7",
        run=run_in_this_process,
    )

    assert [one["body"] for one in found.messages] == ["paid 7"]
    assert found.match_count == 2


def test_a_topic_that_brokers_have_no_more_is_found_in_the_archive(
    broker: PipelineBroker, tmp_path: Path
) -> None:
    broker.create("gone")
    broker.send("gone", ["kept"])
    history = str(tmp_path / "history")
    archive(history, nameserver=broker.nameserver, topics=["gone"])
    broker.delete("gone")

    def found(topics: list[str]) -> list[str]:
        result = search(
            nameserver=broker.nameserver, archive=history, topics=topics, run=run_in_this_process
        )
        return [one["body"] for one in result.messages]

    assert found(["gone"]) == ["kept"]
    assert len(found(["gone", "batches"])) == 21
    with pytest.raises(PipelineError, match=r"knows no topic 'batch' \(did you mean 'batches'"):
        found(["gone", "batch"])
    with pytest.raises(PipelineError, match=r"knows no topic 'gone'"):
        search(nameserver=broker.nameserver, topics=["gone"], run=run_in_this_process)


def count_units(store: Path, topic: str) -> int:
    """Count the units on disk in the queues of a topic."""
    files = [data for name, data in queue_files(store).items() if f"/{topic}/" in name]
    return sum(size > 0 for data in files for _, size, _ in CONSUME_QUEUE_UNIT.iter_unpack(data))


async def test_a_killed_broker_is_audited(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with Daemon(store) as daemon:
        async with Producer(daemon.nameserver) as producer:
            for number in range(60):
                await producer.send(
                    Message("T", b"m%d" % number, keys=[f"k{number}"], tags=f"t{number % 3}")
                )
        # The files of new queues are made a moment after their first messages.
        await until(lambda: count_units(store, "T") == 60)
        await daemon.kill()
    result = audit(str(store), run=run_in_this_process)
    assert result.counts == {}
    assert result.record_count >= 60


class TestCommands:
    """The commands, as far as they need no Spark."""

    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(main, [*arguments, "--quiet"])

    def test_an_audit_says_what_is_missing(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", 50)
        options = ("--index-slots", "16", "--index-entries", "400")
        assert self.run("audit", str(store), *options).exit_code == 0
        shutil.rmtree(store / "consumequeue")
        audited = self.run("audit", str(store), *options)
        assert audited.exit_code == 1
        assert "rockhopper-broker store rebuild" in audited.output
        assert self.run("audit", str(store), "--split-size", "big").exit_code == 2

    def test_rebuild_names_what_replaces_it(self) -> None:
        gone = self.run("rebuild", "store")
        assert gone.exit_code == 2
        assert "rockhopper-broker store rebuild" in gone.output

    def test_search_prints_messages(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", 50)

        table = self.run("search", "--path", str(store), "--key", "kk", "--limit", "2")
        lines = self.run("search", "--path", str(store), "-c", "body 7", "--lines")

        assert "2 messages (of" in table.output
        assert [json.loads(line)["body"] for line in lines.output.splitlines()] == ["body 7"]
        assert self.run("search", "--path", str(store), "--from", "soon").exit_code == 2
        assert self.run("search", "--path", str(store)).exit_code == 2
        assert os.environ.get("PYSPARK_GATEWAY_PORT") is None
