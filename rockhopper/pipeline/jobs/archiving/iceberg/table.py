"""Access an Iceberg table through the JVM of Spark's driver, and commit runs to it.

A run writes into a branch of its own, which begins at the snapshot that the run planned from. Then
one commit moves ``main`` forward to that branch and stores the position (positions.py). Iceberg
refuses that commit if another one came first. So of two runs that began at one position, only one
succeeds. A run that is killed earlier leaves a branch that no reader uses. Such branches expire
after a day.
"""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg.evolution import Addition
from rockhopper.pipeline.jobs.archiving.iceberg.positions import (
    PROPERTY,
    WITNESS,
    Snapshot,
    Witness,
    find_newest,
    is_ancestor,
)
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import TableName, jvm_of
from rockhopper.pipeline.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BRANCH = "rockhopper-run-"
_MAIN = "main"
_LEFT_OVER_MS = 86_400_000
_CONFLICTS = ("CommitFailedException", "Cannot fast-forward")


@dataclass(frozen=True)
class StagedBranch:
    """The result of writing into a branch."""

    branch: str
    snapshot: int
    base: int
    files: int
    size_bytes: int


def is_conflict(error: Exception) -> bool:
    """Return whether Iceberg refused a commit because of a concurrent one."""
    return any(word in str(error) for word in _CONFLICTS)


class IcebergTable:
    """One table; its state is that of the last ``refresh``."""

    def __init__(self, spark: "SparkSession", name: TableName) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        self.name = name
        spark3 = self._jvm.org.apache.iceberg.spark.Spark3Util
        self._table = spark3.loadIcebergTable(spark._jsparkSession, name.sql)
        self.refresh()

    @classmethod
    def opened(cls, spark: "SparkSession", name: TableName) -> "IcebergTable | None":
        """Return the table; None if it does not exist."""
        return cls(spark, name) if spark.catalog.tableExists(name.sql) else None

    @classmethod
    def made(cls, spark: "SparkSession", name: TableName) -> "IcebergTable":
        """Create an empty table, unless another process has just created it."""
        columns = ", ".join(
            f"`{field.name}` {field.dataType.simpleString()}" for field in spark_schema()
        )
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.namespace}")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name.sql} ({columns}) USING iceberg "
            "PARTITIONED BY (topic, days(storeTimestamp))"
        )
        return cls(spark, name)

    def refresh(self) -> None:
        """Read the currently committed state."""
        self._table.refresh()
        main = self._table.snapshot(_MAIN)
        self.head: int | None = None if main is None else main.snapshotId()
        self.snapshots = {
            each.snapshotId(): Snapshot(
                each.snapshotId(), each.parentId(), each.summary().get(PROPERTY)
            )
            for each in self._table.snapshots()
        }

    def position(self) -> str | None:
        """Return the position of the table; None if it is empty and has no position.

        Raises:
            PipelineError: it has messages, and no position describes them.
        """
        found = find_newest(self.snapshots, self.head)
        if found.position is not None:
            return found.position
        noted, witness = (self._table.properties().get(name) for name in (PROPERTY, WITNESS))
        if found.is_cut and noted and witness and self._holds(Witness.from_json(witness)):
            return str(noted)
        if self.head is None or self._spark.table(self.name.sql).isEmpty():
            return None
        raise PipelineError(
            f"no snapshot of {self.name} says how far its messages go: those that did were expired "
            "and the table was rolled back or the newest messages deleted, or archive has not made "
            "it; archive into another table"
        )

    def _holds(self, witness: Witness) -> bool:
        from pyspark.sql import functions as f

        rows = self._spark.table(self.name.sql).where(
            (f.col("topic") == witness.topic)
            & (f.col("brokerName") == witness.broker)
            & (f.col("queueId") == witness.queue_id)
            & (f.col("queueOffset") == witness.offset)
        )
        return not rows.isEmpty()

    def extend(self, missing: Sequence[Addition]) -> None:
        """Add fields, all in one commit."""
        if not missing:
            return
        from pyspark.sql.types import StructType

        update = self._table.updateSchema()
        convert = self._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert
        from_json = self._jvm.org.apache.spark.sql.types.DataType.fromJson
        for each in missing:
            one = StructType().add(each.name, each.type)
            java_type = convert(from_json(one.json())).findField(each.name).type()
            path = (each.parent, each.name) if each.parent else (each.name,)
            update.addColumn(*path, java_type)
        update.commit()
        self._spark.catalog.refreshTable(self.name.sql)

    def stage(self, rows: "DataFrame", position: str) -> StagedBranch:
        """Write *rows* into a branch that begins at ``head``."""
        branch = f"{_BRANCH}{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}"
        start = () if self.head is None else (self.head,)
        manage = self._table.manageSnapshots()
        manage.createBranch(branch, *start).setMaxRefAgeMs(branch, _LEFT_OVER_MS).commit()
        self._spark.catalog.refreshTable(self.name.sql)
        try:
            rows.writeTo(f"{self.name.sql}.`branch_{branch}`").option(
                f"snapshot-property.{PROPERTY}", position
            ).append()
            self._table.refresh()
            written = self._table.snapshot(branch)
            said = written.summary()
            return StagedBranch(
                branch,
                written.snapshotId(),
                written.parentId(),
                int(said.get("added-data-files") or 0),
                int(said.get("added-files-size") or 0),
            )
        except BaseException:
            self.drop(branch)
            raise

    def added(self, staged: StagedBranch) -> "DataFrame":
        """Return the rows of a branch that are not in ``head``."""
        reader = self._spark.read.option("start-snapshot-id", str(staged.base))
        return reader.option("end-snapshot-id", str(staged.snapshot)).table(self.name.sql)

    def publish(self, staged: StagedBranch, position: str, witness: Witness) -> bool:
        """Make a branch the main one; return False, without changes, after a concurrent commit."""
        try:
            change = self._table.newTransaction()
            change.manageSnapshots().fastForwardBranch(_MAIN, staged.branch).commit()
            properties = change.updateProperties()
            properties.set(PROPERTY, position).set(WITNESS, witness.to_json()).commit()
            change.commitTransaction()
        except Exception as error:
            # The commit may have succeeded, with only the answer lost.
            self.refresh()
            if is_ancestor(self.snapshots, staged.snapshot, self.head):
                return True
            if is_conflict(error):
                return False
            raise
        finally:
            self._spark.catalog.refreshTable(self.name.sql)
        return True

    def drop(self, branch: str) -> None:
        """Remove a branch, and ignore errors, because they must not hide another error.

        If the removal fails, the branch expires.
        """
        with suppress(Exception):
            self._table.refresh()
            self._table.manageSnapshots().removeBranch(branch).commit()

    def drop_left_over(self) -> None:
        """Remove the branches of runs that were killed a day ago or earlier."""
        now_ms = time.time_ns() // 1_000_000
        for branch in find_left_over(list(self._table.refs().keySet()), now_ms):
            self.drop(branch)


def find_left_over(refs: Sequence[str], now_ms: int) -> list[str]:
    """Return the *refs* that are branches of runs that began a day ago or earlier."""
    found = []
    for name in refs:
        began, _, rest = name.removeprefix(_BRANCH).partition("-")
        is_ours = name.startswith(_BRANCH) and began.isdecimal() and rest
        if is_ours and int(began) + _LEFT_OVER_MS <= now_ms:
            found.append(name)
    return found
