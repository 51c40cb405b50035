"""The columns: what options choose, and that Spark gets the types that it demands."""

import pickle

from pyspark.sql.pandas.types import to_arrow_schema

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.schema import (
    COLUMNS,
    DEFAULT_COLUMNS,
    OPTIONAL_COLUMNS,
    arrow_schema,
    choose_columns,
    spark_schema,
)


def test_batches_have_the_very_schema_that_spark_derives() -> None:
    columns = COLUMNS + OPTIONAL_COLUMNS

    assert to_arrow_schema(spark_schema(columns), timezone="UTC") == arrow_schema(columns)


def test_without_options_there_are_the_cheap_columns() -> None:
    assert choose_columns({}) == DEFAULT_COLUMNS
    assert {"topic", "queueId", "queueOffset", "body", "tags", "keys"} < {*DEFAULT_COLUMNS}
    assert {*COLUMNS} - {*DEFAULT_COLUMNS} > {"properties", "msgId", "bornHost"}


def test_all_is_every_column_but_the_optional_ones() -> None:
    assert choose_columns({"columns": "*"}) == choose_columns({"columns": "All"}) == COLUMNS
    whole = {"columns": "all", "includeBody": "false", "includeRawProperties": "true"}
    wanted = [name for name in COLUMNS if name != "body"]
    assert choose_columns(whole) == (*wanted, "rawProperties")


def test_switches_add_to_the_cheap_columns_and_take_away() -> None:
    wanted = {*DEFAULT_COLUMNS, "properties"} - {"body"}
    assert {*choose_columns({"includeProperties": "true", "includeBody": "false"})} == wanted


def test_a_damaged_place_is_told_of_with_where_it_is() -> None:
    assert {"physOffset", "body", "corrupt"} < {*choose_columns({"corruptRecords": "column"})}


def test_options_choose_columns_and_their_order_whatever_their_case() -> None:
    assert choose_columns({"COLUMNS": "storetimestamp, Topic"}) == ("storeTimestamp", "topic")
    assert "body" not in choose_columns({"includebody": "false"})
    assert choose_columns({"includeRawProperties": "true"}) == (*DEFAULT_COLUMNS, "rawProperties")
    assert choose_columns({"verifyCrc": "flag", "columns": "topic"}) == ("topic", "crcOk")
    assert choose_columns({"corruptRecords": "column"})[-1] == "corrupt"


def test_errors_come_whole_out_of_a_worker() -> None:
    error = pickle.loads(pickle.dumps(PipelineError("do this: that")))

    assert (str(error), error.sentence) == ("do this: that", "do this: that")
