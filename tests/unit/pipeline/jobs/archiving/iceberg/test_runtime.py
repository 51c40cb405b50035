"""Which table is meant, and which jar of Iceberg a version of Spark takes."""

from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg import runtime
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import (
    TableName,
    coordinate,
    iceberg_session,
    table_name,
)
from rockhopper.pipeline.jobs.results import UsageProblem

NAME = TableName(("lake", "db", "orders"))


def test_a_table_is_named_by_catalog_namespace_and_name() -> None:
    name = table_name("iceberg:lake.a.b.orders")

    assert name is not None
    assert (name.catalog, name.namespace, str(name)) == (
        "lake",
        "`lake`.`a`.`b`",
        "lake.a.b.orders",
    )
    assert name.sql == "`lake`.`a`.`b`.`orders`"
    assert table_name("history") is None
    assert table_name("s3://iceberg/history") is None


@pytest.mark.parametrize("target", ["iceberg:orders", "iceberg:lake.orders", "iceberg:a..b", "`"])
def test_what_names_no_table_is_refused(target: str) -> None:
    with pytest.raises(UsageProblem, match="give catalog, namespace and table"):
        table_name(f"iceberg:{target.removeprefix('iceberg:')}")


def test_the_runtime_is_that_for_the_version_of_spark() -> None:
    package = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13"

    assert coordinate("4.1.4", None) == f"{package}:{runtime.RUNTIMES[4, 1]}"
    assert coordinate("4.1.4", "1.11.0") == f"{package}:1.11.0"
    assert coordinate("4.3.0", "1.20.0").endswith("runtime-4.3_2.13:1.20.0")


def test_a_spark_that_iceberg_has_nothing_for_is_refused() -> None:
    with pytest.raises(
        PipelineError, match=r"no runtime for Spark 4.3 .*'pyspark==4.1.\*'.*--iceberg-version"
    ):
        coordinate("4.3.0", None)


def test_tables_are_refused_where_they_make_no_sense(tmp_path: Any) -> None:
    given: list[dict[str, Any]] = [{"warehouse": "w"}, {"iceberg_version": "1.12.0"}]
    for options in given:
        with pytest.raises(UsageProblem, match="is for archiving into a table: name it as iceberg"):
            jobs.archive(tmp_path, nameserver="127.0.0.1:1", **options)
    with pytest.raises(UsageProblem, match="not from files: give --nameserver instead of --path"):
        jobs.archive("iceberg:lake.db.orders", path=tmp_path)


class GivenSession:
    """A session as far as it is looked at here."""

    version = "4.1.4"

    def __init__(self, *, has_iceberg: bool = True, **conf: str) -> None:
        self._has_iceberg = has_iceberg
        self._conf = {name.replace("__", "."): value for name, value in conf.items()}
        self.conf = SimpleNamespace(get=self._conf.get, set=self._conf.__setitem__)
        loader = SimpleNamespace(loadClass=self._load)
        thread = SimpleNamespace(getContextClassLoader=lambda: loader)
        threads = SimpleNamespace(currentThread=lambda: thread)
        java = SimpleNamespace(lang=SimpleNamespace(Thread=threads))
        self.sparkContext = SimpleNamespace(_jvm=SimpleNamespace(java=java))

    def _load(self, _: str) -> None:
        if not self._has_iceberg:
            raise RuntimeError("java.lang.ClassNotFoundException")


def session(given: Any, warehouse: str | None = None) -> Any:
    return iceberg_session(given, None, NAME, warehouse, None)


def test_a_session_without_the_jar_is_told_which_one() -> None:
    with pytest.raises(PipelineError, match=r"spark.jars.packages=org.apache.iceberg:iceberg-"):
        session(GivenSession(has_iceberg=False))


def test_a_catalog_is_the_sessions_or_made_in_a_directory() -> None:
    with pytest.raises(PipelineError, match="has no catalog 'lake': give the directory of one"):
        session(GivenSession())

    made = session(GivenSession(), "/tables")
    assert made.conf.get("spark.sql.catalog.lake.warehouse") == "/tables"
    assert session(made, "/tables") is made
    assert session(made) is made
    with pytest.raises(PipelineError, match="defines the catalog 'lake' already"):
        session(made, "/others")


def test_a_session_of_spark_connect_is_refused() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    for spark, master in ((remote, None), (None, "sc://cluster:15002")):
        with pytest.raises(PipelineError, match="which a session of Spark Connect does not have"):
            iceberg_session(spark, master, NAME, None, None)
