"""The data source ``rocketmq-store``: read the commit log of a store directory, in parallel.

Spark runs ``schema``, ``reader`` and ``partitions`` in Python workers on the driver's host, and
``read`` in the executors' workers. The former find all problems with options and directory, so the
driver raises the exception.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.schema import spark_schema
from rockhopper.pipeline.store_source.directory import find_commit_log, open_store
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.reading import read_batches
from rockhopper.pipeline.store_source.rules import SOURCE, StoreReadRules, read_rules
from rockhopper.pipeline.store_source.splits import plan
from rockhopper.pipeline.store_source.topics import check_topics


@dataclass
class StorePartition(InputPartition):
    """The pieces that one task reads."""

    pieces: tuple[FilePiece, ...]
    deleted_topics: dict[str, int]

    def __post_init__(self) -> None:
        super().__init__(self.pieces)


class StoreReader(DataSourceReader):
    """Reads with one set of rules; Spark sends it to the workers."""

    def __init__(self, rules: StoreReadRules) -> None:
        self._rules = rules

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task; an empty store has one without pieces."""
        store = open_store(self._rules.path, self._rules.commit_log)
        deleted = store.gone
        tasks = plan(store, self._rules, os.cpu_count() or 1)
        return [StorePartition(pieces, deleted) for pieces in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of one task."""
        assert isinstance(partition, StorePartition)
        return read_batches(partition.pieces, self._rules, partition.deleted_topics)


class StoreSource(DataSource):
    """The data source; docs/spark.md describes its options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SOURCE

    def schema(self) -> StructType:
        """Return the columns that the options choose."""
        rules = read_rules(self.options)
        find_commit_log(rules.path, rules.commit_log)
        return spark_schema(rules.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader; *schema* must be the one that ``schema`` returned."""
        rules = read_rules(self.options)
        if tuple(schema.fieldNames()) != rules.columns:
            raise PipelineError(
                f"{SOURCE} has a schema of its own: leave .schema(...) out, and choose columns "
                "with the option columns"
            )
        if not rules.include_deleted_topics:
            root, _ = find_commit_log(rules.path, rules.commit_log)
            check_topics(root, rules.topics or ())
        return StoreReader(rules)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802
        """Not supported. Raises PipelineError."""
        raise PipelineError(
            f"{SOURCE} has no streams: read its files as a batch with spark.read, or its broker's "
            "topics with spark.readStream and the format rocketmq"
        )

    def simpleStreamReader(self, schema: StructType) -> NoReturn:  # noqa: N802
        """Not supported. Raises PipelineError."""
        self.streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Not supported. Raises PipelineError."""
        raise PipelineError(
            f"{SOURCE} only reads: write to a broker's topic, with the format rocketmq"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        """Not supported. Raises PipelineError."""
        self.writer(schema, overwrite)
