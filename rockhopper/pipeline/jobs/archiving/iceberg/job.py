"""A run of ``archive`` into a table: plan, write into a branch, publish it with its position."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg.evolution import find_additions
from rockhopper.pipeline.jobs.archiving.iceberg.positions import Witness, decode, encode
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import TableName, iceberg_session
from rockhopper.pipeline.jobs.archiving.iceberg.source import (
    SOURCE,
    ArchiveSource,
    table_schema,
    work_document,
)
from rockhopper.pipeline.jobs.archiving.iceberg.table import IcebergTable, StagedBranch, is_conflict
from rockhopper.pipeline.jobs.archiving.manifest import Manifest
from rockhopper.pipeline.jobs.archiving.options import ArchiveOptions
from rockhopper.pipeline.jobs.archiving.planning import plan_run, spell_options
from rockhopper.pipeline.jobs.archiving.result import ArchiveResult, TopicCount
from rockhopper.pipeline.jobs.archiving.values import ValueFormat
from rockhopper.pipeline.jobs.results import UsageProblem, format_count
from rockhopper.pipeline.jobs.spark import describe_jobs, spark_problem
from rockhopper.pipeline.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES = 3


@dataclass(frozen=True)
class Counts:
    """The counts of the rows that a run has written."""

    by_topic: Mapping[str, int]
    undecoded: int
    witness: Witness


def archive_table(asked: ArchiveOptions, name: TableName) -> ArchiveResult:
    """Copy new messages of topics into an Iceberg table. Raises PipelineError."""
    if asked.path is not None:
        raise UsageProblem(
            "a table of Iceberg's is archived from brokers, not from files: give --nameserver "
            "instead of --path, or archive into a directory"
        )
    asked.progress.step("starting Spark")
    warehouse = None if asked.warehouse is None else str(asked.warehouse)
    spark = iceberg_session(asked.spark, asked.master, name, warehouse, asked.iceberg_version)
    spark.dataSource.register(ArchiveSource)
    try:
        with describe_jobs(spark, f"archiving into {name}"):
            for _ in range(_TRIES):
                result = _CommitAttempt(spark, asked, name).result()
                if result is not None:
                    return result
                asked.progress.say(f"{name} was changed meanwhile: writing once more")
    except PipelineError as error:
        sentence = error.sentence.replace("another directory", "another table")
        raise PipelineError(sentence) from error
    except Exception as error:
        raise spark_problem(error) from error
    raise PipelineError(
        f"{name} was changed by others in each of {_TRIES} tries to add to it, and nothing was "
        "added: run this again when its maintenance is done"
    )


class _CommitAttempt:
    """One try, from the table's current position."""

    def __init__(self, spark: "SparkSession", asked: ArchiveOptions, name: TableName) -> None:
        self._spark = spark
        self._asked = asked
        self._name = name
        self._table = IcebergTable.opened(spark, name)
        self._noted = None if self._table is None else self._table.position()
        current = None if self._noted is None else decode(self._noted, str(name))
        self._value = choose_value(asked, current)
        self._plan = plan_run(asked, current)
        self._number = (0 if current is None else current.run) + 1

    def result(self) -> ArchiveResult | None:
        """Do the run or a dry run; return None if it must be tried again. Raises PipelineError."""
        asked, plan = self._asked, self._plan
        wanted = table_schema(self._value)
        if self._table is not None:
            there = self._spark.table(self._name.sql).schema
            missing = find_additions(there, wanted, str(self._name))
        if asked.dry_run or not plan.waiting:
            waiting = Counts(plan.waiting, 0, Witness("", "", 0, 0))
            return self._told(waiting, None)
        if self._table is None:
            self._table = IcebergTable.made(self._spark, self._name)
            there = self._spark.table(self._name.sql).schema
            missing = find_additions(there, wanted, str(self._name))
        try:
            self._table.drop_left_over()
            self._table.extend(missing)
            self._table.refresh()
            return self._added(self._table)
        except Exception as error:
            if not is_conflict(error):
                raise
            self._refuse_overtaken(self._table)
            return None

    def _added(self, table: IcebergTable) -> ArchiveResult | None:
        self._refuse_overtaken(table)
        plan, asked = self._plan, self._asked
        text = encode(self._manifest())
        asked.progress.step(
            f"archiving {format_count(len(plan.waiting), 'topic')} of {asked.source}"
        )
        staged = spell_options(lambda: self._staged(table, text))
        try:
            counts = count_rows(table.added(staged), has_value=self._value is not None)
            self._check(counts)
            asked.progress.step(f"committing {format_count(staged.files, 'file')}")
            if not table.publish(staged, text, counts.witness):
                self._refuse_overtaken(table)
                return None
        finally:
            table.drop(staged.branch)
        return self._told(counts, staged)

    def _staged(self, table: IcebergTable, text: str) -> StagedBranch:
        try:
            return table.stage(self._rows(), text)
        except Exception as error:
            raise error if is_conflict(error) else spark_problem(error) from error

    def _rows(self) -> "DataFrame":
        asked, plan = self._asked, self._plan
        assert asked.nameserver is not None
        work = work_document(
            asked.nameserver,
            plan.shares,
            self._value,
            allow_gaps=asked.allow_gaps,
            refuses_bad_values=asked.bad_values == "fail",
        )
        return self._spark.read.format(SOURCE).option("work", work).load()

    def _refuse_overtaken(self, table: IcebergTable) -> None:
        """Check that no other run has added messages in the meantime. Raises PipelineError."""
        table.refresh()
        if table.position() != self._noted:
            raise PipelineError(
                f"another run has added to {self._name} meanwhile, and nothing of this one was "
                "added: run it again, one at a time"
            )

    def _check(self, counts: Counts) -> None:
        if not self._asked.allow_gaps and dict(counts.by_topic) != self._plan.waiting:
            raise PipelineError(
                f"{sum(counts.by_topic.values())} messages were written of the "
                f"{sum(self._plan.waiting.values())} that were planned, so nothing was added to "
                f"{self._name}: run it again"
            )

    def _manifest(self) -> Manifest:
        value = self._value
        return Manifest(
            run=self._number,
            created_ms=time.time_ns() // 1_000_000,
            source=dict(self._plan.source),
            columns=COLUMNS if value is None else (*COLUMNS, "value"),
            value=None if value is None else value.to_document(),
            reached=self._plan.reached,
        )

    def _told(self, counts: Counts, staged: StagedBranch | None) -> ArchiveResult:
        return ArchiveResult(
            directory=str(self._name),
            run=self._number,
            source=self._asked.source,
            rows=sum(counts.by_topic.values()),
            files=0 if staged is None else staged.files,
            bytes=0 if staged is None else staged.size_bytes,
            topics=[TopicCount(topic, count) for topic, count in sorted(counts.by_topic.items())],
            undecoded=counts.undecoded,
            tasks=len(self._plan.shares),
            away=list(self._plan.away),
            dry_run=self._asked.dry_run,
        )


def choose_value(asked: ArchiveOptions, current: Manifest | None) -> ValueFormat | None:
    """Return the body format: the requested one, or that of the last run. Raises UsageProblem."""
    known = None if current is None else current.value
    if asked.value is not None:
        return asked.value
    if known is not None:
        return ValueFormat(known["format"], known["schema"], asked.registry)
    if asked.bad_values != "null":
        raise UsageProblem(
            "--bad-values (bad_values) is for decoding bodies: add --decode, or leave it out"
        )
    return None


def count_rows(rows: "DataFrame", *, has_value: bool) -> Counts:
    """Count the rows that were just written."""
    from pyspark.sql import functions as f

    undecoded = f.count_if(f.col("value").isNull()) if has_value else f.lit(0)
    last = f.max(f.struct("queueOffset", "brokerName", "queueId"))
    found = rows.groupBy("topic").agg(
        f.count("*").alias("rows"), undecoded.alias("undecoded"), last.alias("last")
    )
    by_topic, witness, bad = {}, Witness("", "", 0, 0), 0
    for row in found.collect():
        by_topic[row["topic"]] = row["rows"]
        bad += row["undecoded"]
        offset, broker, queue_id = row["last"]
        witness = Witness(row["topic"], broker, queue_id, offset)
    return Counts(by_topic, bad, witness)
