"""The name of a table, and a Spark session with Iceberg.

``iceberg:lake.db.messages`` names a table by catalog, namespace and name. Iceberg has one jar for
each version of Spark, on Maven Central, and releases it later than Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.remote import REMOTE
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.spark import job_session
from rockhopper.pipeline.packaging import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "iceberg:"
RUNTIMES: Mapping[tuple[int, ...], str] = {(4, 1): "1.12.0"}
"""Spark version -> the Iceberg version that was tested with it."""

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


@dataclass(frozen=True)
class TableName:
    """A table by its catalog, its namespace and its own name."""

    parts: tuple[str, ...]

    @property
    def catalog(self) -> str:
        """The name of the catalog in the session's settings."""
        return self.parts[0]

    @property
    def namespace(self) -> str:
        """Catalog and namespace, quoted for SQL."""
        return _quote(self.parts[:-1])

    @property
    def sql(self) -> str:
        """The full name, quoted for SQL."""
        return _quote(self.parts)

    def __str__(self) -> str:
        return ".".join(self.parts)


def _quote(parts: tuple[str, ...]) -> str:
    return ".".join(f"`{part}`" for part in parts)


def table_name(target: str) -> TableName | None:
    """Return the table in an archive's target; None for a directory. Raises UsageProblem."""
    if not target.startswith(PREFIX):
        return None
    parts = tuple(target.removeprefix(PREFIX).split("."))
    if len(parts) < 3 or not all(parts) or "`" in target:
        raise UsageProblem(
            f"{target} names no table: give catalog, namespace and table, as iceberg:lake.db.orders"
        )
    return TableName(parts)


def coordinate(spark_version: str, chosen: str | None) -> str:
    """Return Iceberg's Maven coordinate for a version of Spark; *chosen* selects Iceberg's version.

    Raises:
        PipelineError: no version is known to run.
    """
    known = tuple(int(part) for part in spark_version.split(".")[:2] if part.isdecimal())
    version = chosen or RUNTIMES.get(known)
    named = ".".join(map(str, known))
    if version is None:
        newest = ".".join(map(str, max(RUNTIMES)))
        raise PipelineError(
            f"Iceberg has no runtime for Spark {named} that this version of the pipeline knows: "
            f"pip install 'pyspark=={newest}.*', or name a newer one with --iceberg-version"
        )
    return f"org.apache.iceberg:iceberg-spark-runtime-{named}_2.13:{version}"


def iceberg_session(
    spark: "SparkSession | None",
    master: str | None,
    name: TableName,
    warehouse: str | None,
    version: str | None,
) -> "SparkSession":
    """Return a session with Iceberg and the catalog: *spark*, the running one, or a new one.

    Raises:
        PipelineError: there is no Iceberg for this Spark or in this session, or no such catalog.
    """
    import pyspark
    from pyspark.sql import SparkSession

    if (spark is not None and is_remote(spark)) or (master or "").startswith(REMOTE):
        raise PipelineError(
            "a table is committed through the Java of Spark's driver, which a session of Spark "
            "Connect does not have: leave the session out, or start the job by spark-submit"
        )
    is_own = spark is None and SparkSession.getActiveSession() is None
    package = coordinate(pyspark.__version__ if spark is None else spark.version, version)
    session = _own_session(master, package) if is_own else job_session("archive", spark, master)
    if not has_iceberg(session):
        raise PipelineError(
            f"this session of Spark has no Iceberg: start it with spark.jars.packages={package}, "
            "or leave the session out"
        )
    _define(session, name.catalog, warehouse)
    return session


def _own_session(master: str | None, package: str) -> "SparkSession":
    try:
        return job_session("archive", None, master, {"spark.jars.packages": package})
    except PipelineError as error:
        if not error.sentence.startswith("Spark did not start"):
            raise
        said = error.sentence
    except Exception as error:
        said = str(error).partition("\n")[0]
    raise PipelineError(
        f"Spark did not start with {package} ({said}): the jar comes from Maven Central, so "
        "check that this machine can reach it, or give a session whose spark.jars has it"
    )


def has_iceberg(spark: "SparkSession") -> bool:
    """Return whether the driver's JVM finds Iceberg."""
    try:
        jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader().loadClass(_CATALOG)
    except Exception:  # a Java exception, raised by Py4J
        return False
    return True


def jvm_of(spark: Any) -> Any:
    """Return the classes of the driver's JVM."""
    return spark.sparkContext._jvm


def _define(spark: "SparkSession", catalog: str, warehouse: str | None) -> None:
    """Check that the catalog exists; define a catalog in a directory. Raises PipelineError."""
    key = f"spark.sql.catalog.{catalog}"
    defined = spark.conf.get(key, None)
    if defined is None and warehouse is None:
        raise PipelineError(
            f"this session has no catalog {catalog!r}: give the directory of one with --warehouse, "
            f"or a session whose settings define it ({key})"
        )
    if defined is None:
        assert warehouse is not None
        spark.conf.set(key, _CATALOG)
        spark.conf.set(f"{key}.type", "hadoop")
        spark.conf.set(f"{key}.warehouse", warehouse)
    elif warehouse is not None and spark.conf.get(f"{key}.warehouse", "") != warehouse:
        raise PipelineError(
            f"this session defines the catalog {catalog!r} already: leave --warehouse out, or give "
            "the catalog another name"
        )
