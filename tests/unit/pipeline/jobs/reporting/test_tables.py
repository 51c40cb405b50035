"""The tables of a report as files: sorted, with times that are times, never half written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline.jobs.reporting.tables import (
    CSV,
    PARQUET,
    prepare_for_files,
    replace,
    write_tables,
)
from rockhopper.pipeline.jobs.reporting.tallies import HOUR_MS, Tables

HOUR = 489_000 * HOUR_MS


def tables() -> Tables:
    """Two topics; the second has more messages."""
    return {
        "times": pa.table(
            {
                "timeMs": pa.array([HOUR + HOUR_MS, HOUR + 60_000, HOUR + 1, HOUR], pa.int64()),
                "topic": ["b", "b", "b", "a"],
                "messages": [4, 2, 1, 5],
                "bytes": [40, 20, 10, 50],
            }
        ),
        "queues": pa.table(
            {
                "topic": ["b", "a", "b"],
                "broker": ["y", "x", "x"],
                "queueId": [0, 1, 2],
                "messages": [3, 5, 4],
                "bytes": [30, 50, 40],
                "lastMs": pa.array([HOUR, HOUR + 1, HOUR + 2], pa.int64()),
            }
        ),
        "tags": pa.table({"topic": ["b", "a", "c"], "tag": ["u", "v", "w"], "messages": [1, 9, 1]}),
        "sizes": pa.table({"topic": ["b", "b", "a"], "size": [64, 32, 128], "messages": [1, 1, 1]}),
        "producers": pa.table({"topic": ["a", "b"], "host": ["h", "i"], "messages": [1, 2]}),
    }


def test_messages_are_summed_by_hour_and_topic() -> None:
    hours = prepare_for_files(tables())["hours"]
    assert hours["hour"].type == pa.timestamp("ms", tz="UTC")
    found = hours.set_column(0, "hour", hours["hour"].cast(pa.int64())).to_pylist()
    assert found == [
        {"hour": HOUR, "topic": "a", "messages": 5, "bytes": 50},
        {"hour": HOUR, "topic": "b", "messages": 3, "bytes": 30},
        {"hour": HOUR + HOUR_MS, "topic": "b", "messages": 4, "bytes": 40},
    ]


def test_topics_are_summed_over_queues_the_busiest_first() -> None:
    assert prepare_for_files(tables())["topics"].to_pylist() == [
        {"topic": "b", "messages": 7, "bytes": 70},
        {"topic": "a", "messages": 5, "bytes": 50},
    ]


def test_the_busiest_tags_and_producers_come_first_then_by_topic() -> None:
    made = prepare_for_files(tables())
    assert made["tags"]["tag"].to_pylist() == ["v", "u", "w"]
    assert made["producers"]["host"].to_pylist() == ["i", "h"]


def test_sizes_are_in_order_and_queues_say_when_their_last_message_came() -> None:
    made = prepare_for_files(tables())
    assert made["sizes"]["size"].to_pylist() == [128, 32, 64]
    queues = made["queues"]
    places = zip(
        *(queues[name].to_pylist() for name in ("topic", "broker", "queueId")), strict=True
    )
    assert list(places) == [("a", "x", 1), ("b", "x", 2), ("b", "y", 0)]
    assert "lastMs" not in queues.column_names
    assert queues["lastStored"].cast(pa.int64()).to_pylist() == [HOUR + 1, HOUR + 2, HOUR]


def test_files_of_each_wanted_kind_replace_former_ones(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "tables"
    write_tables(directory, {"t": pa.table({"n": [1, 2]})}, (PARQUET, CSV))
    write_tables(directory, {"t": pa.table({"n": [3]})}, (PARQUET, CSV))
    assert sorted(path.name for path in directory.iterdir()) == ["t.csv", "t.parquet"]
    assert pq.read_table(directory / "t.parquet")["n"].to_pylist() == [3]
    assert pyarrow.csv.read_csv(directory / "t.csv")["n"].to_pylist() == [3]
    write_tables(directory, {"u": pa.table({"n": [4]})}, (CSV,))
    assert not (directory / "u.parquet").exists()


def test_a_writer_that_fails_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"before")

    def fail(file: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace(path, fail)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_no_text_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@a", " =1", "\t=1", "\rx", "plain", "a=b", None]
    table = pa.table({"topic": pa.array(texts), "n": [-1] * len(texts)})
    write_tables(tmp_path, {"t": table}, (CSV, PARQUET))
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    found = pyarrow.csv.read_csv(tmp_path / "t.csv", parse_options=options)
    assert found["topic"].to_pylist() == [
        *("'=1+1", "'+1", "'-1", "'@a", "' =1", "'\t=1", "'\rx", "plain", "a=b", ""),
    ]
    assert found["n"].to_pylist() == [-1] * len(texts)
    assert pq.read_table(tmp_path / "t.parquet")["topic"].to_pylist() == texts
