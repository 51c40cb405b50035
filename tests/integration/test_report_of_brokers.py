"""``report`` over the network: a broker's messages, its groups' lag, and an archive of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.pipeline.jobs.archiving.job import archive
from rockhopper.pipeline.jobs.reporting.inputs import Chosen, archive_work, network_work
from rockhopper.pipeline.jobs.reporting.lag import sample
from rockhopper.pipeline.jobs.reporting.tallies import combine_tallies, tally
from tests.support.pipeline_broker import PipelineBroker


@pytest.fixture
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as broker:
        broker.create("orders", queues=2)
        for queue_id in (0, 1):
            broker.send("orders", [f"b{n}" for n in range(50)], queue=queue_id, tags="new")
        yield broker


def test_lag_is_sampled_by_queue(broker: PipelineBroker) -> None:
    from rockhopper.pipeline.remote import connect

    remote = connect(broker.nameserver)
    queue = next(each for each in remote.queues("orders") if each.queue_id == 1)
    remote.commit("billing", {queue: 20})

    rows = sample(broker.nameserver, 1_700_000_000_000, ["orders"]).to_pylist()

    assert {row["group"] for row in rows} == {"billing"}
    assert {row["queueId"]: (row["committed"], row["end"], row["lag"]) for row in rows} == {
        0: (0, 50, 50),
        1: (20, 50, 30),
    }
    assert rows[0]["lastConsumedAt"] is None
    assert rows[1]["lastConsumedAt"] is not None
    assert sample(broker.nameserver, 0, ["something else"]).num_rows == 0


def test_messages_of_brokers_are_counted(broker: PipelineBroker) -> None:
    for chosen in (Chosen(), Chosen(("orders",))):
        found = combine_tallies(map(tally, network_work(broker.nameserver, chosen, 2).tasks))

        queues = found["queues"].sort_by("queueId").to_pylist()
        assert [(row["topic"], row["queueId"], row["messages"]) for row in queues] == [
            ("orders", 0, 50),
            ("orders", 1, 50),
        ]
        assert queues[0]["broker"] == broker.broker.config.broker_name
        assert found["tags"]["tag"].to_pylist() == ["new"]


def test_an_archive_counts_like_the_topics_it_is_of(broker: PipelineBroker, tmp_path: Path) -> None:
    broker.send("orders", ["later"], queue=0)
    archive(tmp_path / "archive", nameserver=broker.nameserver)

    live = combine_tallies(map(tally, network_work(broker.nameserver, Chosen(), 1).tasks))
    kept = combine_tallies(map(tally, archive_work(str(tmp_path / "archive"), Chosen(), 2).tasks))

    for name, table in live.items():
        keys = [(column, "ascending") for column in table.column_names]
        assert kept[name].select(table.column_names).sort_by(keys) == table.sort_by(keys), name
    nothing = archive_work(str(tmp_path / "archive"), Chosen(("other",)), 2)
    assert nothing == ([], 0)
    late = Chosen(start_ms=1 << 42)
    assert archive_work(str(tmp_path / "archive"), late, 2).tasks == []
