"""Jobs over the network while one of two brokers is away: nothing is left out without a word."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline import jobs
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from tests.support.pipeline_broker import PipelineBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelineBroker]:
    """Broker-a, whose name server knew broker-b, which has half of the topic ``split``."""
    with PipelineBroker() as started:
        with started.beside() as other:
            started.create("split", 1)
            started.create("again", 1)
            for served, name in ((started, "broker-a"), (other, "broker-b")):
                served.send("split", ["first"], MessageQueue("split", name, 0))
            whole = tmp_path_factory.mktemp("whole")
            assert jobs.archive(whole, nameserver=started.nameserver, topics=["split"]).rows == 2
            started.whole = whole  # type: ignore[attr-defined]
        started.send("split", ["second"], MessageQueue("split", "broker-a", 0))
        yield started


def newest(archive: Path) -> Any:
    return Catalog(LocalFiles(archive)).current()


def forget(broker: PipelineBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the name server be one that was restarted, or Apache's."""
    assert broker.broker.servers.name_service is not None
    monkeypatch.setattr(broker.broker.servers.name_service.routes, "_departed", {})


def test_an_archive_says_who_was_away(broker: PipelineBroker, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"nameserver": broker.nameserver, "topics": ["split"]}
    foretold = jobs.archive(tmp_path / "a", dry_run=True, **arguments)
    result = jobs.archive(tmp_path / "a", **arguments)

    assert (result.rows, result.away, foretold.away) == (2, ["broker-b"], ["broker-b"])
    assert not result.is_good
    assert "the broker broker-b is away" in str(result)
    assert "--without broker-b" in str(result)
    assert newest(tmp_path / "a").away == ["broker-b"]

    known = jobs.archive(tmp_path / "a", without=["broker-b"], **arguments)
    assert known.is_good
    assert newest(tmp_path / "a").away == []


def test_an_archive_misses_a_broker_that_it_has_messages_of(
    broker: PipelineBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(broker, monkeypatch)
    whole = broker.whole  # type: ignore[attr-defined]
    result = jobs.archive(whole, nameserver=broker.nameserver, topics=["split"])
    assert (result.rows, result.away) == (1, ["broker-b"])
    others = jobs.archive(whole, nameserver=broker.nameserver, topics=["again"])
    assert others.away == []


def test_a_replay_of_such_an_archive_says_so(broker: PipelineBroker, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"nameserver": broker.nameserver}
    jobs.archive(tmp_path / "a", topics=["split"], **arguments)
    result = jobs.replay(tmp_path / "a", to="again", broker="broker-a", **arguments)
    assert (result.sent, result.away) == (2, ["broker-b"])
    assert "the broker broker-b is noted as away" in str(result)


def test_a_search_says_who_was_not_asked(broker: PipelineBroker) -> None:
    arguments: dict[str, Any] = {"nameserver": broker.nameserver, "topics": ["split"]}
    assert jobs.search(**arguments).away == ["broker-b"]
    assert jobs.search(without=["broker-b"], **arguments).is_good


def test_a_report_says_who_was_not_asked(
    broker: PipelineBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"nameserver": broker.nameserver, "topics": ["split"]}
    assert jobs.report(tmp_path / "r", **arguments).away == ["broker-b"]
    forget(broker, monkeypatch)
    assert jobs.report(tmp_path / "r", **arguments).is_good
