"""The columns that a frame may have: every one that is documented, and no other."""

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.columns import SINK_COLUMNS, check_columns
from rockhopper.pipeline.sink.rules import SinkRules, read_rules

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


def rules(streaming: bool = True, **given: str) -> SinkRules:
    return read_rules(BASE | given, streaming=streaming)


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_all_columns_pass_that_are_documented() -> None:
    kinds: dict[str, DataType] = {
        "string": StringType(),
        "binary": BinaryType(),
        "byte": IntegerType(),
        "map<string,string>": MapType(StringType(), StringType()),
        "timestamp": TimestampType(),
    }
    exclusive = ("rawProperties", "queueId", "delayTimeLevel")
    names = [name for name in SINK_COLUMNS if name not in exclusive]
    check_columns(frame(**{name: kinds[SINK_COLUMNS[name][0]] for name in names}), rules())
    check_columns(frame(body=BinaryType(), queueId=LongType(), rawProperties=BinaryType()), rules())


@pytest.mark.parametrize(
    ("columns", "given", "says"),
    [
        ({"value": StringType()}, {}, "no column 'value' (did you mean 'body'?)"),
        ({"timestamp": StringType()}, {}, "no column 'timestamp' (did you mean 'bornTimestamp'?)"),
        ({"bodi": StringType()}, {}, "no column 'bodi' (did you mean 'body'?)"),
        ({"body": StringType(), "queueOffset": LongType()}, {}, "only brokers fill: drop it"),
        ({"body": LongType()}, {}, "'body' is of type long: cast it to string or binary"),
        ({"body": StringType(), "queueId": StringType()}, {}, "byte, short, integer or long"),
        (
            {"body": StringType(), "properties": MapType(StringType(), LongType())},
            {},
            "of type map<string,long>: cast it to map<string,string>",
        ),
        ({"tags": StringType()}, {}, "there is no column 'body'"),
        ({"body": StringType()}, {"topic": ""}, "nothing says which topic"),
        (
            {"body": StringType(), "queueId": LongType(), "shardingKey": StringType()},
            {},
            "contradict each other",
        ),
        (
            {"body": StringType(), "brokerName": StringType()},
            {"delivery": "exactly-once"},
            "drop the column 'brokerName'",
        ),
    ],
)
def test_a_frame_that_cannot_be_written(
    columns: dict[str, DataType], given: dict[str, str], says: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        check_columns(frame(**columns), rules(True, **given))
    assert says in str(caught.value)


def test_two_columns_of_one_name() -> None:
    twice = StructType([StructField("body", StringType()), StructField("body", BinaryType())])
    with pytest.raises(PipelineError, match="several columns 'body'"):
        check_columns(twice, rules())
