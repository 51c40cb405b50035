"""Select the messages of a replay: files by their metadata, the rest by SQL.

Spark reads only the columns of the conditions, and stores which rows of which file match. Bodies
are not read until a task sends them.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.replaying.parquet_files import MessageFiles, SourceFile
from rockhopper.pipeline.jobs.replaying.plan import PlannedFile, ReplayRequest
from rockhopper.pipeline.jobs.results import UsageProblem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOISE = re.compile(r"^\[[\w.]+\] | SQLSTATE: .*")
_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"


def prune(
    source: MessageFiles, request: ReplayRequest
) -> tuple[list[SourceFile], list[SourceFile]]:
    """Return the files to replay whole, and the files whose rows must be selected."""
    whole: list[SourceFile] = []
    partly: list[SourceFile] = []
    for each in source.files:
        of_rows = None if request.key or request.where else True
        verdicts = [_of_topics(each, request), _of_time(each, request), of_rows]
        if False not in verdicts:
            (partly if None in verdicts else whole).append(each)
    return whole, partly


def _of_topics(file: SourceFile, request: ReplayRequest) -> bool | None:
    if not request.topics:
        return True
    return None if file.topic is None else file.topic in request.topics


def _of_time(file: SourceFile, request: ReplayRequest) -> bool | None:
    if request.start_ms is None and request.end_ms is None:
        return True
    low, high = file.min_store_ms, file.max_store_ms
    if low is None or high is None:
        return None
    start, end = request.span_ms
    if high < start or low >= end:
        return False
    return True if start <= low and high < end else None


def choose_rows(
    spark: "SparkSession", source: MessageFiles, files: Sequence[SourceFile], request: ReplayRequest
) -> "DataFrame":
    """Return the matching rows of *files*, as ``path`` and ``row``.

    Raises:
        PipelineError: the condition is invalid, or names a missing column.
    """
    from pyspark.errors import AnalysisException, ParseException

    # PySpark also logs the errors that it raises, at length.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    before = spark.conf.get(_INFERENCE, "true")
    # Topics may look like numbers.
    spark.conf.set(_INFERENCE, "false")
    try:
        reader = spark.read.option("basePath", str(source.root))
        frame = reader.parquet(*(each.path for each in files))
    finally:
        spark.conf.set(_INFERENCE, str(before))
    try:
        for condition in _conditions(request):
            frame = frame.where(condition)
        return frame.selectExpr("_metadata.file_path AS path", "_metadata.row_index AS row")
    except (AnalysisException, ParseException) as error:
        said = _NOISE.sub("", " ".join(str(error).strip().split("\n")[0].split())).strip(" .")
        raise UsageProblem(
            f"the messages cannot be chosen so ({said}): conditions are Spark SQL over "
            f"{', '.join(frame.columns)}"
        ) from error


def _conditions(request: ReplayRequest) -> list[str]:
    found = []
    if request.topics:
        found.append(f"topic IN ({', '.join(map(_literal, request.topics))})")
    if request.start_ms is not None:
        found.append(f"storeTimestamp >= timestamp_millis({request.start_ms})")
    if request.end_ms is not None:
        found.append(f"storeTimestamp < timestamp_millis({request.end_ms})")
    if request.key:
        found.append(f"array_contains(split(keys, ' '), {_literal(request.key)})")
    if request.where:
        found.append(f"({request.where})")
    return found


def _literal(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


def plan_files(
    source: MessageFiles, whole: Sequence[SourceFile], counts: Mapping[str, int]
) -> tuple[PlannedFile, ...]:
    """Return the files of a plan, in source order; *counts* maps URIs to selected rows."""
    chosen = {unquote(urlsplit(uri).path): uri for uri in counts}
    unknown = chosen.keys() - {each.path for each in source.files}
    if unknown:
        raise PipelineError(
            f"Spark names a file that is not among those of {source.root}: {min(unknown)}; "
            "move the files to a path without unusual characters"
        )
    rows = {path: (counts[uri], uri) for path, uri in chosen.items()}
    rows |= {each.path: (each.rows, "") for each in whole}
    return tuple(
        PlannedFile(each.path, each.topic, *rows[each.path])
        for each in source.files
        if rows.get(each.path, (0, ""))[0]
    )
