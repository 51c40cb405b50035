"""A topic's history and live messages as one table: first the archive, then the brokers.

The archive stores its end position for every queue, and reading from the brokers starts there.
Queues that are not in the archive are read from the brokers from their beginning. These positions
are fixed when the view is created, so no row appears twice if the archive grows later. No row goes
missing either: if messages after the end of the archive expire on the brokers, a query fails.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import TableName, table_name
from rockhopper.pipeline.jobs.archiving.manifest import (
    Manifest,
    Positions,
    Reached,
    list_left,
    merge_summaries,
)
from rockhopper.pipeline.jobs.archiving.reading import read_archive
from rockhopper.pipeline.options import suggest_near_or_some
from rockhopper.pipeline.schema import COLUMNS, choose_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DATE = "date"
_DAY_MS = 86_400_000
_BEGINNINGS = (
    "subscribe subscribePattern assign topic startingOffsets startingTimestamp "
    "startingOffsetsByTimestamp topicIds logEpochs"
).lower()
_OF_BROKERS_ALONE = "subExpression filterType decompress verifyCrc".lower()


@dataclass(frozen=True)
class History:
    """The contents of an archive, with all columns and ``date``, and its end positions."""

    frame: "DataFrame"
    topics: frozenset[str]
    reached: Reached


def history_view(
    spark: "SparkSession",
    name: str,
    *,
    archive: str | os.PathLike[str],
    nameserver: str,
    topics: Sequence[str] = (),
    **options: Any,
) -> "DataFrame":
    """Create the temporary view *name* of *topics* (by default the topic called *name*).

    *archive* is a directory, a URI or ``iceberg:CATALOG.NAMESPACE.TABLE``; *options* are the
    options of the source ``rocketmq``. The columns are the columns of that source and ``date``, the
    UTC day of ``storeTimestamp``; conditions on ``date`` skip files. The first query fixes the ends
    of the brokers' queues; create the view again to include newer messages.

    Raises:
        PipelineError: the archive does not exist or lacks a topic, or a view cannot use an option.
    """
    chosen = tuple(topics) or (name,)
    given = {key: str(value) for key, value in options.items()}
    _check_options(given)
    columns = choose_columns(given)
    if lacking := [column for column in columns if column not in COLUMNS]:
        raise PipelineError(f"an archive has no column {lacking[0]!r}: leave it out")
    history = _history(spark, str(archive), chosen)
    for topic in chosen:
        if topic not in history.topics:
            near = suggest_near_or_some(topic, sorted(history.topics))
            raise PipelineError(f"the archive {archive} has no topic {topic!r}{near}: correct it")
    live = spark.read.format("rocketmq").options(
        **given,
        nameServer=nameserver,
        subscribe=",".join(chosen),
        **make_start_options(history.reached, chosen),
    )
    shown = [*columns, _DATE]
    if "storeTimestamp" not in columns:
        live = live.option("columns", ",".join((*columns, "storeTimestamp")))
    kept = history.frame
    if condition := next((text for key, text in given.items() if key.lower() == "where"), ""):
        kept = kept.where(condition)
    both = kept.select(*shown).unionByName(_add_day(live.load()).select(*shown))
    both.createOrReplaceTempView(name)
    return both


def _check_options(given: Iterable[str]) -> None:
    for key in given:
        if key.lower() in _BEGINNINGS.split():
            raise PipelineError(f"a view says itself where it begins: leave {key} out")
        if key.lower() in _OF_BROKERS_ALONE.split():
            raise PipelineError(
                f"{key} would be true of what brokers have, and not of the archive: leave it out, "
                "and say where (or a condition of the query)"
            )


def _add_day(frame: "DataFrame") -> "DataFrame":
    day = f"date_from_unix_date(CAST(floor(unix_millis(storeTimestamp) / {_DAY_MS}) AS INT))"
    return frame.selectExpr("*", f"{day} AS {_DATE}")


def make_start_options(reached: Reached, topics: Sequence[str]) -> dict[str, str]:
    """Return the options that make the source start at *reached*, for *topics*."""
    offsets = {topic: reached.positions[topic] for topic in topics if topic in reached.positions}
    ids = {topic: reached.topic_ids[topic] for topic in topics if topic in reached.topic_ids}
    logs = {broker: list(epochs) for broker, epochs in reached.logs.items()}
    found = {"startingOffsets": offsets, "topicIds": ids, "logEpochs": logs if offsets else {}}
    return {name: json.dumps(value) for name, value in found.items() if value}


def _history(spark: "SparkSession", archive: str, topics: Sequence[str]) -> History:
    table = table_name(archive)
    if table is not None:
        return _read_table(spark, table, topics)
    # Read once: what is archived later is neither in the files nor in the positions.
    manifests = list(Catalog(files_at(archive)).manifests())
    reached = find_reached(manifests)
    files = list_left(manifests)
    frame = read_archive(spark, archive, [file for file in files if file.topic in topics])
    return History(frame, frozenset({*reached.positions, *(f.topic for f in files)}), reached)


def find_reached(manifests: Sequence[Manifest]) -> Reached:
    """Return the end positions of an archive, including queues archived from store files.

    Raises:
        PipelineError: the archive holds a store whose broker has no name.
    """
    if not manifests:
        return Reached()
    last = manifests[-1]
    positions: Positions = {
        topic: {broker: dict(queues) for broker, queues in brokers.items()}
        for topic, brokers in last.reached.positions.items()
    }
    for each in merge_summaries([queue for manifest in manifests for queue in manifest.queues]):
        if each.broker not in last.log_positions:
            continue
        if not each.broker:
            raise PipelineError(
                "this archive was made from the files of a store without a name for its "
                "broker, so it is unknown where it ends on which: archive it again with "
                "--broker-name"
            )
        of_broker = positions.setdefault(each.topic, {}).setdefault(each.broker, {})
        of_broker[str(each.queue_id)] = each.last_offset + 1
    return replace(last.reached, positions=positions)


def _read_table(spark: "SparkSession", name: TableName, topics: Sequence[str]) -> History:
    from rockhopper.pipeline.jobs.archiving.iceberg.positions import decode
    from rockhopper.pipeline.jobs.archiving.iceberg.table import IcebergTable

    table = IcebergTable.opened(spark, name)
    position = None if table is None else table.position()
    if table is None or position is None or table.head is None:
        raise PipelineError(f"there is no archive in {name}: make one with the job archive")
    reached = decode(position, str(name)).reached
    rows = spark.read.option("versionAsOf", str(table.head)).table(name.sql)
    return History(
        _add_day(rows.where(rows.topic.isin(*topics))), frozenset(reached.positions), reached
    )
