"""Conditions in Spark's SQL that are answered without Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.searching import job
from rockhopper.pipeline.jobs.searching.job import search
from rockhopper.pipeline.options import Options
from rockhopper.pipeline.schema import COLUMNS, arrow_schema
from rockhopper.pipeline.where import parse_where, read_where, with_columns
from tests.support.pipeline_broker import PipelineBroker
from tests.support.where_conditions import LEFT_TO_SPARK, UNDERSTOOD, log_of_odd_messages
from tests.support.written_archives import archive_of
from tests.support.written_logs import WrittenLog

ROWS: list[dict[str, Any]] = [
    {"queueId": 1, "queueOffset": 5, "tags": "red", "keys": "k_1", "properties": {"a": "x"}},
    {"queueId": 2, "queueOffset": 6, "tags": "blüe", "properties": {"a": ""}},
    {"queueId": 3, "queueOffset": 7, "keys": "k%2\nmore", "properties": {}},
]


def rows_of(condition: str) -> list[int]:
    found = parse_where(condition)
    assert found is not None, condition
    batch = pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(COLUMNS))
    mask = found.mask(batch).to_pylist()
    return [row for row, is_in in enumerate(mask) if is_in]


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("queueId = 2", [1]),
        ("QUEUEID >= 2 and `queueOffset` < 7", [1]),
        ("3 > queueId", [0, 1]),
        ("queueOffset > queueId AND queueId <> -1", [0, 1, 2]),
        ("tags = 'red' OR tags = \"blüe\"", [0, 1]),
        ("tags != 'red'", [1]),
        ("NOT tags = 'red'", [1]),
        ("NOT (tags = 'red' OR queueId = 3)", [1]),
        ("NOT (tags = 'red' AND queueId = 3)", [0, 1]),
        ("NOT tags = 'red' OR queueId = 3", [1, 2]),
        ("tags IS NULL", [2]),
        ("tags is not null and not keys is null", [0]),
        ("tags IN ('red', 'green')", [0]),
        ("tags NOT IN ('red', 'green')", [1]),
        ("queueId BETWEEN 2 AND 3 AND tags IS NULL", [2]),
        ("queueId NOT BETWEEN 2 AND 3", [0]),
        ("tags LIKE 'r%'", [0]),
        ("tags LIKE '__üe'", [1]),
        ("keys LIKE '%more'", [2]),
        ("keys NOT LIKE 'k_1'", [2]),
        ("properties['a'] = 'x'", [0]),
        ("properties['a'] IS NULL", [2]),
        ("tags > 'blue'", [0, 1]),
        ("tags = 'a' OR tags = 'b' AND queueId = 1 OR queueId = 3", [2]),
    ],
)
def test_what_is_understood(condition: str, rows: list[int]) -> None:
    assert rows_of(condition) == rows


@pytest.mark.parametrize("condition", LEFT_TO_SPARK)
def test_what_is_left_to_spark(condition: str) -> None:
    assert parse_where(condition) is None


def test_the_conditions_that_spark_is_asked_about_are_understood() -> None:
    assert [one for one in UNDERSTOOD if parse_where(one) is None] == []


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("Spark is asked")

    monkeypatch.setattr("rockhopper.pipeline.jobs.spark.job_session", refuse)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


@pytest.mark.usefixtures("no_spark")
def test_small_stores_and_archives_need_no_spark(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(200)
    archive = archive_of(log, tmp_path / "archive", end=log.offsets[150])
    where = "topic = 'topic-1' AND queueOffset BETWEEN 100 AND 160"

    found = search(str(log.root), archive=str(archive), where=where, limit=1000)
    archived = search(archive=str(archive), where=where, contains="body 1", limit=1000)

    offsets = [number for number in range(100, 161) if number % 3 == 1]
    assert [one["queueOffset"] for one in found.messages] == offsets
    assert [one["queueOffset"] for one in archived.messages] == [n for n in offsets if n < 150]
    with pytest.raises(AssertionError, match="Spark is asked"):
        search(str(log.root), where="size(properties) > 5")


@pytest.mark.usefixtures("no_spark")
def test_brokers_with_few_messages_need_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    with PipelineBroker() as broker:
        broker.create("T", 2)
        broker.send("T", map(str, range(300)), tags="red", keys="k")
        broker.send("T", ["wanted"], tags="blue", keys="k")

        by_tag = search(nameserver=broker.nameserver, tag="blue")
        by_where = search(nameserver=broker.nameserver, where="tags = 'blue'", topics=["T"])

        assert [one["body"] for one in by_tag.messages] == ["wanted"]
        assert by_where.messages == by_tag.messages
        assert by_where.looked_at_count == 301
        monkeypatch.setattr(job, "network_bytes", lambda *_: 1 << 40)
        choices: list[dict[str, Any]] = [{"key": "k"}, {"where": "tags = 'blue'"}]
        for options in choices:
            with pytest.raises(AssertionError, match="Spark is asked"):
                search(nameserver=broker.nameserver, **options)


def test_odd_messages_are_there_to_compare(tmp_path: Path) -> None:
    log = log_of_odd_messages(tmp_path / "store")

    assert len(search(str(log.root), where="queueId >= 0", limit=1000).messages) == len(log.offsets)


@pytest.mark.parametrize(
    ("condition", "needles"),
    [
        ("keys = 'A17'", (b"A17",)),
        ("'A17' = keys AND tags == 'ä' AND queueId = 1", (b"A17", "ä".encode())),
        ("(keys = 'A17' AND properties['n'] = 'v') AND topic = 't'", (b"A17", b"v")),
        ("keys = 'A17' OR tags = 'x'", ()),
        ("NOT keys = 'A17'", ()),
        ("keys IN ('a', 'b')", ()),
        ("keys IN ('a')", (b"a",)),
        ("keys > 'a' AND msgId = 'm' AND keys = ''", ()),
        ("keys = tags", ()),
        ("keys = 'a\ufffd'", ()),
    ],
)
def test_what_the_bytes_of_a_record_must_hold(condition: str, needles: tuple[bytes, ...]) -> None:
    found = parse_where(condition)
    assert found is not None
    assert found.needles == needles


@pytest.mark.parametrize(
    ("condition", "may_hold"),
    [
        ("topic = 'orders'", True),
        ("topic = 'bills'", False),
        ("topic = 'bills' OR tags = 'x'", True),
        ("NOT topic = 'orders'", False),
        ("queueId IN (0, 2) AND tags = 'x'", False),
        ("queueId < 2 AND brokerName LIKE 'b%'", True),
        ("properties['n'] = 'v' AND queueId = 0", False),
        ("tags IS NULL AND queueId = 0", True),
        ("queueOffset > 5", True),
    ],
)
def test_which_queues_may_hold_what_is_wanted(condition: str, may_hold: bool) -> None:
    found = parse_where(condition)
    assert found is not None
    assert found.may_hold("orders", "b1", 1) is may_hold


def test_rows_that_fulfil_a_condition() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(COLUMNS))
    for condition, offsets in (
        ("tags <> 'red'", [6]),
        ("queueId > 0", [5, 6, 7]),
        ("flag = 1", []),
    ):
        found = parse_where(condition)
        assert found is not None
        assert found.matching(batch).column("queueOffset").to_pylist() == offsets
        assert found.matching(batch.slice(0, 0)).num_rows == 0


def test_the_option_where() -> None:
    given = {"where": " tags = 'x' "}
    assert read_where(Options("rocketmq", given, ("where",))) == "tags = 'x'"
    assert read_where(Options("rocketmq", {}, ("where",))) == ""
    with pytest.raises(PipelineError, match="more than a source understands"):
        read_where(Options("rocketmq", {"where": "size(keys) > 1"}, ("where",)))


def test_columns_that_only_the_condition_looks_at_come_last() -> None:
    columns = with_columns(("queueId", "body"), parse_where("tags = 'a' AND queueId = 1"))
    assert columns == ("queueId", "body", "tags")
    assert with_columns(("body",), None) == ("body",)
