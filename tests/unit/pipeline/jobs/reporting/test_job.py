"""The job ``report`` without Spark: its files, its page, its lag."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.reporting.job import ReportResult, report
from rockhopper.pipeline.jobs.reporting.lag import SCHEMA
from rockhopper.pipeline.jobs.results import UsageProblem
from tests.support.written_logs import T0_MS, WrittenLog


class Lag:
    """Stands in for brokers; one more message behind at each sample."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, int, Any]] = []
        monkeypatch.setattr("rockhopper.pipeline.jobs.reporting.lag.sample", self.sample)
        monkeypatch.setattr("rockhopper.pipeline.jobs.reporting.lag.list_away", lambda *_: [])

    def sample(self, nameserver: str, now_ms: int, topics: Any) -> pa.Table:
        self.asked.append((nameserver, now_ms, topics))
        row = {
            "sampledAt": now_ms,
            "group": "billing",
            "topic": "topic-1",
            "broker": "broker-a",
            "queueId": 0,
            "committed": 5,
            "end": 5 + len(self.asked),
            "lag": len(self.asked),
            "lastConsumedAt": now_ms - 90_000,
        }
        return pa.Table.from_pylist([row], schema=SCHEMA)


class Page(HTMLParser):
    """Sees whether elements close, and what a page wants from elsewhere."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wanted: list[str] = []
        self.ids: list[str] = []
        self.text = Path(path).read_text()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "path", "use", "rect"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.wanted.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("path", "use", "rect"):
            return
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()


@pytest.mark.costly
def test_a_report_is_a_page_and_tables(tmp_path: Path) -> None:
    WrittenLog(tmp_path / "store").add(300)

    result = report(tmp_path / "out", path=tmp_path / "store")

    assert (result.messages, len(result.topics)) == (300, 3)
    assert {Path(name).name for name in result.tables} == {
        f"{name}.{kind}"
        for name in ("hours", "topics", "tags", "sizes", "producers", "queues", "lag")
        for kind in ("parquet", "csv")
    }
    assert sum(pq.read_table(tmp_path / "out/queues.parquet")["messages"].to_pylist()) == 300
    assert pyarrow.csv.read_csv(tmp_path / "out/topics.csv").num_rows == 3
    assert f"open {result.page}" in list(result.lines())


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lag(monkeypatch)
    WrittenLog(tmp_path / "store").add(300).add(3, topic="<b>&amp;", body=bytes(3000))
    for now_ms in (T0_MS, T0_MS + 60_000):
        options: dict[str, Any] = {"nameserver": "n:1", "now_ms": lambda t=now_ms: t}
        result = report(tmp_path / "out", path=tmp_path / "store", **options)

    page = Page(result.page)

    assert page.open == []
    assert page.wanted == []
    assert len(page.ids) == len(set(page.ids))
    assert "<b>&amp;" not in page.text
    assert page.text.count("<svg") == 3
    assert "url(http" not in page.text
    assert not re.search(r"#0a0[bc]", page.text), "a colour of matplotlib's is left"
    assert "in 2 samples" in page.text


def test_every_run_adds_a_sample_of_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lag = Lag(monkeypatch)
    WrittenLog(tmp_path / "store").add(5)
    results: list[ReportResult] = []
    for now_ms in (1_000, 2_000):
        options: dict[str, Any] = {"path": tmp_path / "store", "now_ms": lambda t=now_ms: t}
        options |= {"formats": ("csv",), "topics": ["topic-1"], "nameserver": "n:1"}
        results.append(report(tmp_path / "out", **options))

    assert [(each.lag, each.lag_samples) for each in results] == [(1, 1), (2, 2)]
    assert lag.asked == [("n:1", 1_000, ("topic-1",)), ("n:1", 2_000, ("topic-1",))]
    assert pq.read_table(tmp_path / "out/lag.parquet")["lag"].to_pylist() == [1, 2]


def test_watching_samples_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag = Lag(monkeypatch)
    WrittenLog(tmp_path / "store").add(5)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    clock = iter(range(1_000, 99_000, 500))
    result = report(
        tmp_path / "out",
        path=tmp_path / "store",
        nameserver="n:1",
        watch_s=30,
        wait=wait,
        now_ms=lambda: next(clock),
    )

    assert waits == [30, 30, 30]
    assert result.lag_samples == len(lag.asked) == 3
    assert "in 3 samples" in Path(result.page).read_text()


@pytest.mark.costly
def test_watching_takes_as_many_samples_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag = Lag(monkeypatch)
    WrittenLog(tmp_path / "store").add(5)
    for count in (2, 3):
        report(
            tmp_path / "out",
            path=tmp_path / "store",
            nameserver="n:1",
            watch_s=1,
            watch_count=count,
            wait=lambda _: None,
        )

    assert len(lag.asked) == 5


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    WrittenLog(tmp_path / "store").add(5)

    result = report(tmp_path / "out", path=tmp_path / "store", dry_run=True)

    assert result.tasks == 1
    assert not (tmp_path / "out").exists()


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)

    result = report(tmp_path / "out", path=tmp_path / "store")

    assert "There is nothing to count here." in Page(result.page).text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "a report needs messages"),
        ({"path": "a", "archive": "b"}, "give one"),
        ({"path": "a", "watch_s": 5}, "add --nameserver"),
        ({"path": "a", "nameserver": "n:1", "watch_s": 0}, "give seconds"),
        ({"path": "a", "watch_count": 3}, "with --watch: add that"),
        ({"path": "a", "start_ms": 5, "end_ms": 5}, "nothing in between"),
        ({"path": "a", "formats": ("xls",)}, "not as xls"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=says):
        report(tmp_path / "out", **options)


def test_a_place_without_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no archive in"):
        report(tmp_path / "out", archive=tmp_path)


def test_a_foreign_table_of_lag_is_not_overwritten(tmp_path: Path) -> None:
    WrittenLog(tmp_path / "store").add(5)
    (tmp_path / "out").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "out/lag.parquet")

    with pytest.raises(PipelineError, match="move it away"):
        report(tmp_path / "out", path=tmp_path / "store")
    assert pq.read_table(tmp_path / "out/lag.parquet").column_names == ["a"]
