"""Which messages are taken: files by what is known of them, rows by conditions in SQL."""

from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.replaying.parquet_files import MessageFiles, SourceFile
from rockhopper.pipeline.jobs.replaying.plan import PlannedFile, ReplayRequest
from rockhopper.pipeline.jobs.replaying.selecting import choose_rows, plan_files, prune
from rockhopper.pipeline.jobs.results import UsageProblem

WHOLE, PARTLY, NOT = "whole", "partly", "not"
INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"


def source(*files: SourceFile) -> MessageFiles:
    return MessageFiles(Path("/archive"), files, ("body",), is_archive=True)


def verdict(file: SourceFile, **asked: Any) -> str:
    whole, partly = prune(source(file), ReplayRequest("archive", **asked))
    return WHOLE if whole == [file] else PARTLY if partly == [file] else NOT


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, WHOLE),
        ({"topics": ("a", "b")}, WHOLE),
        ({"topics": ("b",)}, NOT),
        ({"start_ms": 10}, WHOLE),
        ({"start_ms": 11}, PARTLY),
        ({"start_ms": 20}, PARTLY),
        ({"start_ms": 21}, NOT),
        ({"end_ms": 21}, WHOLE),
        ({"end_ms": 20}, PARTLY),
        ({"end_ms": 11}, PARTLY),
        ({"end_ms": 10}, NOT),
        ({"start_ms": 10, "end_ms": 21}, WHOLE),
        ({"start_ms": 12, "end_ms": 18}, PARTLY),
        ({"key": "k"}, PARTLY),
        ({"where": "true", "start_ms": 21}, NOT),
    ],
)
def test_a_file_whose_topic_and_times_are_known(asked: dict[str, Any], expected: str) -> None:
    assert verdict(SourceFile("f", 3, "a", 10, 20), **asked) == expected


@pytest.mark.parametrize(
    ("asked", "expected"), [({}, WHOLE), ({"topics": ("a",)}, PARTLY), ({"end_ms": 1}, PARTLY)]
)
def test_a_file_of_which_nothing_is_known(asked: dict[str, Any], expected: str) -> None:
    assert verdict(SourceFile("f", 3, None), **asked) == expected


def test_files_are_planned_in_their_order_by_the_paths_that_spark_names() -> None:
    files = [SourceFile(f"/archive/{name}", 5, None) for name in ("c d", "b", "e", "a")]
    counts = {"file:///archive/a": 2, "file:///archive/c%20d": 3, "file:///archive/e": 0}

    assert plan_files(source(*files), files[1:2], counts) == (
        PlannedFile("/archive/c d", None, 3, "file:///archive/c%20d"),
        PlannedFile("/archive/b", None, 5),
        PlannedFile("/archive/a", None, 2, "file:///archive/a"),
    )
    assert plan_files(source(), [], {}) == ()
    with pytest.raises(PipelineError, match="not among those of /archive: /elsewhere/x;"):
        plan_files(source(*files), [], {"file:///elsewhere/x": 1})


class Frames:
    """As much of a session and its frames as choosing rows asks for."""

    columns = ("topic", "body")

    def __init__(self, error: Exception | None = None) -> None:
        self.settings: dict[str, str] = {}
        self.noted: list[object] = []
        self._error = error
        self.conf = self.read = self

    def get(self, name: str, default: str) -> str:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def option(self, *pair: str) -> "Frames":
        self.noted.append(pair)
        return self

    def parquet(self, *paths: str) -> "Frames":
        self.noted.append((paths, self.settings[INFERENCE]))
        return self

    def where(self, condition: str) -> "Frames":
        self.noted.append(condition)
        if self._error is not None:
            raise self._error
        return self

    def selectExpr(self, *columns: str) -> list[str]:  # noqa: N802  as Spark calls it
        return [each.rpartition(" AS ")[2] for each in columns]


def chosen(frames: Any, **asked: Any) -> Any:
    files = [SourceFile("/archive/f", 3, None)]
    return choose_rows(frames, source(*files), files, ReplayRequest("archive", **asked))


def test_conditions_are_those_that_were_asked_for() -> None:
    frames = Frames()
    asked = {"start_ms": 1, "end_ms": 2, "key": "o'k\\", "where": "a OR b"}

    assert chosen(frames, topics=("0815", "it's"), **asked) == ["path", "row"]

    assert frames.noted == [
        ("basePath", "/archive"),
        (("/archive/f",), "false"),  # else 0815 were a number
        r"topic IN ('0815', 'it\'s')",
        "storeTimestamp >= timestamp_millis(1)",
        "storeTimestamp < timestamp_millis(2)",
        r"array_contains(split(keys, ' '), 'o\'k\\')",
        "(a OR b)",
    ]
    assert frames.settings == {INFERENCE: "true"}


def test_a_condition_that_is_no_sql_names_the_columns() -> None:
    from pyspark.errors import ParseException

    said = "[PARSE_SYNTAX_ERROR] Syntax  error at 'x'. SQLSTATE: 42601 (line 1)\nand more"
    with pytest.raises(UsageProblem) as raised:
        chosen(Frames(ParseException(said)), where="x x")
    assert str(raised.value) == (
        "the messages cannot be chosen so (Syntax error at 'x'): conditions are Spark SQL over "
        "topic, body"
    )
