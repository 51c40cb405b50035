"""The job ``search``: messages by key, tag, body or condition, in stores and archives together."""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from rockhopper.pipeline.access import list_access_options
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
from rockhopper.pipeline.jobs.options import is_empty_span, job
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.searching.condition import Condition
from rockhopper.pipeline.jobs.searching.options import SearchOptions
from rockhopper.pipeline.jobs.searching.result import SearchResult, document
from rockhopper.pipeline.jobs.searching.work import (
    ArchiveTask,
    NetworkTask,
    Row,
    SearchMatches,
    StoreTask,
    network_bytes,
    order,
    search_archive,
    search_network,
    search_store,
)
from rockhopper.pipeline.jobs.tasks import is_small, runner, size_of
from rockhopper.pipeline.options import suggest_near_or_some
from rockhopper.pipeline.schema import COLUMNS, spark_schema
from rockhopper.pipeline.store_source.directory import find_commit_log, open_store
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.splits import plan
from rockhopper.pipeline.store_source.topics import check_topics, known_topics
from rockhopper.pipeline.where import parse_where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rockhopper.pipeline.network.rules import TopicReadRules as NetworkRules

LIMIT = 100


@job(SearchOptions)
def search(asked: SearchOptions) -> SearchResult:
    """Find messages for which all conditions hold, each once, the oldest first.

    The search covers the store at *path* or, over the network, the brokers behind *nameserver*, and
    the *archive*. *where* is a condition in Spark's SQL over the columns of the sources; *sql92* is
    one over properties. *end_ms* is exclusive. *broker_name* is the broker of the store at *path*;
    by default it is the archive's only broker. The result names offline brokers, except those in
    *without*, which are expected to be missing.

    Raises:
        UsageProblem: the arguments are invalid.
        PipelineError: there is nothing to search, or *where* or *sql92* is invalid.
    """
    started = time.monotonic()
    condition = _condition(asked)
    _check(asked, condition)
    search_ = _Search(asked, condition)
    search_.find_topics()
    result = SearchResult(search_.names, asked.dry_run, _as_json_lines=asked.as_json_lines)
    is_for_all = asked.where is None or parse_where(asked.where) is not None
    tasks = list(search_.tasks()) if is_for_all else []
    size = search_.size_bytes(tasks)
    is_here = is_for_all and (asked.run is not None or is_small(asked, size))
    if asked.where is not None and not is_here:
        if asked.dry_run:
            return result
        from rockhopper.pipeline.jobs.spark import job_session

        rows = search_.by_spark(job_session("search", asked.spark, asked.master), asked.where)
        found = [SearchMatches(rows, len(rows))]
    else:
        run = asked.run or runner("search", asked, size_bytes=size)
        result.task_count = len(tasks)
        if asked.dry_run:
            return result
        found = run(tasks, _search_one, "searching")
    rows = _merge(result, found)
    result.away = search_.away()
    result.messages = list(map(document, rows[: asked.limit]))
    result.seconds = time.monotonic() - started
    return result


def _search_one(task: Any) -> SearchMatches:
    if isinstance(task, StoreTask):
        return search_store(task)
    return search_archive(task) if isinstance(task, ArchiveTask) else search_network(task)


def _condition(asked: SearchOptions) -> Condition:
    return Condition(
        asked.key,
        asked.tag,
        asked.contains.encode() if isinstance(asked.contains, str) else asked.contains,
        asked.sql92,
        tuple(asked.topics),
        asked.start_ms,
        asked.end_ms,
    )


def _merge(result: SearchResult, found: Iterable[SearchMatches]) -> list[Row]:
    """Add the counts to the result; return each row once, the oldest first."""
    seen: dict[tuple[Any, ...], Row] = {}
    for part in found:
        result.looked_at_count += part.looked_at_count
        result.match_count += part.match_count
        result.skipped += part.skipped
        for row in part.rows:
            seen.setdefault(_identity(row), row)
    return sorted(seen.values(), key=order)


def _check(asked: SearchOptions, condition: Condition) -> None:
    if asked.path is None and asked.nameserver is None and asked.archive is None:
        raise UsageProblem(
            "there is nothing to search: give a store's path, a nameserver, an archive, or two"
        )
    if asked.path is not None and asked.nameserver is not None:
        raise UsageProblem(
            "path and nameserver are mutually exclusive: the store's files or its broker, "
            "choose one"
        )
    if condition == Condition() and asked.where is None:
        raise UsageProblem(
            "there is nothing to look for: give a key, a tag, a piece of the body, a condition, "
            "times or a topic"
        )
    _check_values(asked, condition)
    condition.check()


def _check_values(asked: SearchOptions, condition: Condition) -> None:
    if asked.where is not None and asked.sql92 is not None:
        raise UsageProblem("where and sql92 are mutually exclusive: leave one out")
    if asked.limit < 1:
        raise UsageProblem(f"the limit is {asked.limit}: set it to at least 1")
    if condition.contains == b"" or condition.key == "" or condition.tag == "":
        raise UsageProblem("a key, tag or piece of the body is empty: leave it out")
    if is_empty_span(asked.start_ms, asked.end_ms):
        raise UsageProblem("nothing is between the two times: swap them or leave one out")


class _Search:
    def __init__(self, asked: SearchOptions, condition: Condition) -> None:
        self._asked = asked
        self._condition = condition
        self._live_topics: tuple[str, ...] | None = condition.topics or None
        """The topics to search in the store or on the brokers; None for all."""
        self._catalog = None if asked.archive is None else Catalog(files_at(asked.archive))
        self._files = [] if self._catalog is None else _archived_files(self._catalog)
        brokers = {queue.broker for file in self._files for queue in file.queues}
        broker_name = asked.broker_name
        if broker_name is None and len(brokers) == 1:
            broker_name = next(iter(brokers))
        self._broker_name = broker_name or ""
        sources = (asked.path, asked.nameserver, asked.archive)
        self.names = [name for name in sources if name is not None]

    def find_topics(self) -> None:
        """Find the topics that are only in the archive, and check that each topic exists somewhere.

        Raises:
            PipelineError: a topic exists nowhere.
        """
        topics = self._condition.topics
        archived = set() if self._catalog is None else self._catalog.topics()
        elsewhere = [topic for topic in topics if topic not in archived]
        known = self._find_live_topics(elsewhere, archived)
        if topics and known is not None:
            self._live_topics = tuple(t for t in topics if t in known or t in elsewhere)

    def _find_live_topics(
        self, elsewhere: Sequence[str], archived: Collection[str]
    ) -> Collection[str] | None:
        """Return the topics of the store or the brokers; None if they make no difference.

        Raises:
            PipelineError: a topic *elsewhere* than in the archive does not exist.
        """
        if self._asked.path is not None:
            root, _ = find_commit_log(self._asked.path)
            check_topics(root, elsewhere)
            return known_topics(root)
        if self._asked.nameserver is None:
            if elsewhere:
                near = suggest_near_or_some(elsewhere[0], sorted(archived))
                raise PipelineError(
                    f"the archive {self._asked.archive} has no topic {elsewhere[0]!r}{near}: "
                    "correct the name, or search the store or the brokers as well"
                )
            return None
        if len(elsewhere) == len(self._condition.topics):
            return None
        from rockhopper.pipeline.remote import connect

        # The source itself refuses topics that are in neither.
        return frozenset(connect(self._asked.nameserver).topics())

    @property
    def _is_live(self) -> bool:
        """Whether there is something to search outside the archive."""
        return self._live_topics != () and (self._asked.path or self._asked.nameserver) is not None

    def away(self) -> list[str]:
        """Return the brokers that are offline."""
        if self._asked.nameserver is None:
            return []
        from rockhopper.pipeline.remote import connect

        return sorted(set(connect(self._asked.nameserver).away()) - set(self._asked.without))

    def tasks(self) -> Iterator[Any]:
        """Yield a task for each part of each source; live ones first, since the first copy wins."""
        condition = replace(self._condition, where=self._asked.where)
        if self._is_live and self._asked.path is not None:
            rules = self._store_rules()
            store = open_store(self._asked.path)
            for pieces in plan(store, rules, os.cpu_count() or 1):
                yield StoreTask(pieces, rules, store.gone, condition, self._asked.limit)
        if self._is_live and self._asked.nameserver is not None:
            from rockhopper.pipeline.network.source import NetworkReader

            reader = NetworkReader(self._network_rules())
            for partition in reader.partitions():
                yield NetworkTask(reader, partition, condition, self._asked.limit)
        for file in self._files:
            if self._may_hold(file):
                assert self._asked.archive is not None
                yield ArchiveTask(self._asked.archive, file, condition, self._asked.limit)

    def size_bytes(self, tasks: list[Any]) -> int:
        """Return the approximate size that the tasks read."""
        total = size_of(task.pieces for task in tasks if isinstance(task, StoreTask))
        total += sum(task.file.bytes for task in tasks if isinstance(task, ArchiveTask))
        partitions = [task.partition for task in tasks if isinstance(task, NetworkTask)]
        if partitions and self._asked.nameserver is not None:
            total += network_bytes(self._network_rules(), partitions)
        return total

    def _store_rules(self) -> StoreReadRules:
        assert self._asked.path is not None
        return StoreReadRules(
            self._asked.path,
            COLUMNS,
            topics=frozenset(self._live_topics or ()) or None,
            start_ms=self._condition.start_ms,
            end_ms=self._condition.end_ms,
            corrupt_records="skip",
            fail_on_data_loss=False,
            broker_name=self._broker_name,
        )

    def _network_rules(self) -> "NetworkRules":
        from rockhopper.pipeline.network.rules import read_rules

        return read_rules(self._network_options(), streaming=False)

    def _network_options(self) -> dict[str, str]:
        assert self._asked.nameserver is not None
        condition = self._condition
        options = {
            "nameServer": self._asked.nameserver,
            "columns": ",".join(COLUMNS),
            "failOnDataLoss": "false",
            **list_access_options(),
        }
        if self._live_topics:
            options["subscribe"] = ",".join(self._live_topics)
        else:
            options["subscribePattern"] = ".*"
        if condition.start_ms is not None:
            options["startingTimestamp"] = str(condition.start_ms)
            options["startingOffsetsByTimestampStrategy"] = "latest"
        if condition.tag is not None:
            options["subExpression"] = condition.tag
        return options

    def _may_hold(self, file: ArchivedFile) -> bool:
        condition = self._condition
        if condition.topics and file.topic not in condition.topics:
            return False
        if condition.start_ms is not None and file.max_store_ms < condition.start_ms:
            return False
        return condition.end_ms is None or file.min_store_ms < condition.end_ms

    def by_spark(self, spark: "SparkSession", where: str) -> list[Row]:
        """Return the matches of a condition in Spark's SQL."""
        from rockhopper.pipeline.jobs.spark import describe_jobs, spark_problem

        try:
            parsed = spark.createDataFrame([], spark_schema(COLUMNS)).where(where)
            parsed.schema  # noqa: B018  analysed here, where nothing else can be wrong
        except Exception as error:
            first = str(error).splitlines()[0]
            raise PipelineError(
                f"the condition {where!r} is not a valid Spark SQL condition over the columns "
                f"{', '.join(COLUMNS)}: {first}"
            ) from error
        rows: list[Row] = []
        try:
            for frame, place in self._frames(spark):
                narrowed = self._narrowed(frame).where(where).orderBy("storeTimestamp")
                with describe_jobs(spark, f"search {place}: {where}"):
                    matches = narrowed.limit(self._asked.limit).collect()
                for found in matches:
                    row = found.asDict()
                    row["body"] = bytes(row["body"] or b"")
                    row["storeTimestamp"] = row["storeTimestamp"].astimezone(UTC)
                    row["place"] = place
                    rows.append(row)
        except Exception as error:
            raise spark_problem(error) from error
        return rows

    def _frames(self, spark: "SparkSession") -> "Iterator[tuple[DataFrame, str]]":
        if self._is_live and self._asked.path is not None:
            rules = self._store_rules()
            options = {
                "path": rules.path,
                "columns": ",".join(COLUMNS),
                "corruptRecords": "skip",
                "failOnDataLoss": "false",
                "brokerName": rules.broker_name,
            }
            if rules.topics:
                options["topic"] = ",".join(sorted(rules.topics))
            for name, ms in (
                ("startingTimestamp", rules.start_ms),
                ("endingTimestamp", rules.end_ms),
            ):
                if ms is not None:
                    options[name] = str(ms)
            yield spark.read.format("rocketmq-store").options(**options).load(), self._asked.path
        if self._is_live and self._asked.nameserver is not None:
            options = self._network_options()
            yield spark.read.format("rocketmq").options(**options).load(), self._asked.nameserver
        files = [file for file in self._files if self._may_hold(file)]
        if files:
            from rockhopper.pipeline.jobs.archiving.reading import read_archive

            assert self._asked.archive is not None
            frame = read_archive(spark, self._asked.archive, files).select(*COLUMNS)
            yield frame, self._asked.archive

    def _narrowed(self, frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as f

        condition = self._condition
        if condition.topics:
            frame = frame.where(f.col("topic").isin(list(condition.topics)))
        if condition.start_ms is not None:
            frame = frame.where(f.unix_millis("storeTimestamp") >= condition.start_ms)
        if condition.end_ms is not None:
            frame = frame.where(f.unix_millis("storeTimestamp") < condition.end_ms)
        if condition.tag is not None:
            frame = frame.where(f.col("tags") == condition.tag)
        if condition.key is not None:
            in_keys = f.array_contains(f.split("keys", " "), condition.key)
            frame = frame.where(in_keys | (f.col("msgId") == condition.key))
        if condition.contains is not None:
            frame = frame.where(f.contains(f.col("body"), f.lit(bytearray(condition.contains))))
        return frame


def _archived_files(catalog: Catalog) -> list[ArchivedFile]:
    if catalog.current() is None:
        raise PipelineError(
            f"there is no archive in {catalog.files.location}: give the directory that the job "
            "archive wrote to"
        )
    return catalog.archived_files()


def _identity(row: Row) -> tuple[Any, ...]:
    """Return the identity of a message.

    It includes the broker that stored it. Files do not name the broker, but offsetMsgId has its
    address.
    """
    names = ("topic", "queueId", "queueOffset", "offsetMsgId", "storeTimestamp")
    return tuple(row[name] for name in names)
