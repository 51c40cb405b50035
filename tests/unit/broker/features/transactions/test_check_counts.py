"""CheckCounts: how often a producer was asked, kept, forgotten, and no reason not to start."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.transactions.check_counts import CheckCounts
from tests.support.peers import Clock


@pytest.fixture
def counts(tmp_path: Path) -> CheckCounts:
    return CheckCounts(tmp_path / "transactions.json", now_ms=Clock())


def test_counts_come_back_from_the_file(tmp_path: Path, counts: CheckCounts) -> None:
    assert counts.get(5) == 0
    counts.record_count(5, 1)
    counts.record_count(5, 2)
    counts.record_count(7, 1)
    counts.save()
    again = CheckCounts(tmp_path / "transactions.json", now_ms=Clock())
    again.load()
    assert [again.get(offset) for offset in (5, 6, 7)] == [2, 0, 1]


def test_what_is_finished_is_forgotten(counts: CheckCounts) -> None:
    for offset in range(4):
        counts.record_count(offset, 1)
    counts.forget(0)
    counts.forget(99)
    counts.keep_only({2, 99})
    assert counts.to_json()["checkTimes"] == {2: 1}


def test_forgetting_what_is_not_there_is_no_change(tmp_path: Path, counts: CheckCounts) -> None:
    counts.forget(1)
    counts.keep_only(set())
    assert counts.is_saved
    counts.record_count(1, 1)
    assert not counts.is_saved


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"checkTimes":[]}', b'{"checkTimes":{"x":1}}', b"\xff"]
)
def test_a_file_that_cannot_be_read_costs_nothing_but_checks(
    tmp_path: Path, counts: CheckCounts, content: bytes
) -> None:
    (tmp_path / "transactions.json").write_bytes(content)
    with capture_logs() as logs:
        counts.load()
    assert counts.get(1) == 0
    assert [entry["log_level"] for entry in logs] == ["warning"] * bool(logs)
