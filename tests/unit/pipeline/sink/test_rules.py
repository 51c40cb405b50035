"""The options of the sink, and the columns that a frame may have."""

import pickle

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
from rockhopper.pipeline.retrying import Patience
from rockhopper.pipeline.sink.columns import SINK_COLUMNS, check_columns
from rockhopper.pipeline.sink.rules import SinkRules, read_rules
from rockhopper.pipeline.sink.writer import make_stream_writer, make_writer

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


def rules(streaming: bool = True, **given: str) -> SinkRules:
    return read_rules(BASE | given, streaming=streaming)


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_the_least_that_must_be_said() -> None:
    found = rules()
    assert (found.topic, found.is_exactly_once, found.compress_over) == ("orders", False, 4096)
    assert found.patience == Patience(20, 0.5)
    assert pickle.loads(pickle.dumps(found)) == found


def test_what_spark_gives_beside_is_let_pass() -> None:
    found = read_rules(
        {
            "nameserver": "a:1",
            "checkpointlocation": "/c",
            "delivery": "Exactly-Once",
            "sendtimeoutms": "70",
            "retries": "0",
        },
        streaming=True,
    )
    assert found.is_exactly_once
    assert found.compress_over is None
    assert (found.timeout_s, found.patience.retries) == (0.07, 0)


@pytest.mark.parametrize(
    ("given", "streaming", "says"),
    [
        ({"nameServer": ""}, True, "needs the option 'nameServer'"),
        ({"topik": "T"}, True, "did you mean 'topic'?"),
        ({"topic": "no good"}, True, "topic cannot be used"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, True, "brokers write themselves"),
        ({"producerGroup": "a b"}, True, "producerGroup cannot be used"),
        ({"delivery": "once"}, True, "at-least-once, exactly-once"),
        ({"sinkId": "s"}, True, "sinkId is for delivery=exactly-once"),
        ({"broker": "b"}, True, "broker is for delivery=exactly-once"),
        ({"delivery": "exactly-once", "batchId": "3"}, True, "leave the option batchId out"),
        ({"delivery": "exactly-once"}, False, "needs the option sinkId"),
        ({"delivery": "exactly-once", "sinkId": "s" * 256}, True, "256 characters"),
        ({"delivery": "exactly-once", "compressOver": "1k"}, True, "bodies as they are"),
        ({"batchBytes": "5m"}, True, "4m or less"),
        ({"secretKey": "hush-5"}, True, "no access keys"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    given: dict[str, str], streaming: bool, says: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        rules(streaming, **given)
    assert says in str(caught.value)
    assert "hush-5" not in str(caught.value)


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


def test_topics_are_not_overwritten() -> None:
    with pytest.raises(PipelineError, match=r"mode\('append'\)"):
        make_writer(frame(body=StringType()), rules(False), True)
    with pytest.raises(PipelineError, match=r"outputMode\('append'\)"):
        make_stream_writer(frame(body=StringType()), rules(), True)
