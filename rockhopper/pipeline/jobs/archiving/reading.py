"""Read an archive as a DataFrame: exactly the files in its manifests."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
from rockhopper.pipeline.jobs.archiving.values import ValueFormat
from rockhopper.pipeline.jobs.archiving.writing import FILE_COLUMNS
from rockhopper.pipeline.schema import COLUMNS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_archive(
    spark: "SparkSession",
    directory: str | os.PathLike[str],
    files: Sequence[ArchivedFile] | None = None,
) -> "DataFrame":
    """Return the messages of an archive, or of some *files*: all columns, ``date``, ``value``.

    Unlike ``spark.read.parquet``, it never sees half of a run, and topic names are always strings,
    even if they look like numbers.

    Raises:
        PipelineError: there is no archive.
    """
    from pyspark.sql import types

    catalog = Catalog(files_at(str(directory)))
    current = catalog.current()
    if current is None:
        raise PipelineError(
            f"there is no archive in {catalog.files.location}: make one with "
            f"python -m rockhopper.pipeline archive {directory}"
        )
    schema = spark_schema(FILE_COLUMNS)
    names = list(COLUMNS)
    if current.value is not None:
        from pyspark.sql.pandas.types import from_arrow_type

        value = ValueFormat(current.value["format"], current.value["schema"])
        schema = schema.add("value", from_arrow_type(value.arrow_type()))
        names.append("value")
    schema = schema.add("topic", types.StringType()).add("date", types.DateType())
    chosen = catalog.archived_files() if files is None else files
    if not chosen:
        return spark.createDataFrame([], schema).select(*names, "date")
    for each in chosen:
        catalog.files.path(each.path)  # refuses links that lead outside
    location = catalog.files.location
    reader = spark.read.schema(schema).option("basePath", location)
    return reader.parquet(*(f"{location}/{each.path}" for each in chosen)).select(*names, "date")
