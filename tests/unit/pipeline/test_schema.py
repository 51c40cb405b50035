"""The columns: what options choose, and that Spark gets the types that it demands."""

import pickle

from pyspark.sql.pandas.types import to_arrow_schema

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.schema import (
    COLUMNS,
    OPTIONAL_COLUMNS,
    arrow_schema,
    choose_columns,
    spark_schema,
)


def test_batches_have_the_very_schema_that_spark_derives() -> None:
    columns = COLUMNS + OPTIONAL_COLUMNS

    assert to_arrow_schema(spark_schema(columns), timezone="UTC") == arrow_schema(columns)


def test_without_options_there_are_all_columns_but_the_optional_ones() -> None:
    assert choose_columns({}) == choose_columns({"columns": "*"}) == COLUMNS


def test_options_choose_columns_and_their_order_whatever_their_case() -> None:
    assert choose_columns({"COLUMNS": "storetimestamp, Topic"}) == ("storeTimestamp", "topic")
    assert "body" not in choose_columns({"includebody": "false"})
    assert choose_columns({"includeRawProperties": "true"}) == (*COLUMNS, "rawProperties")
    assert choose_columns({"verifyCrc": "flag", "columns": "topic"}) == ("topic", "crcOk")
    assert choose_columns({"corruptRecords": "column"})[-1] == "corrupt"


def test_errors_come_whole_out_of_a_worker() -> None:
    error = pickle.loads(pickle.dumps(PipelineError("do this: that")))

    assert (str(error), error.sentence) == ("do this: that", "do this: that")
