"""The options of the network source: what they mean, and every contradiction."""

import pickle

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.rules import Position, read_rules
from rockhopper.pipeline.retrying import Patience
from rockhopper.pipeline.schema import DEFAULT_COLUMNS

BASE = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}


def test_the_least_that_must_be_said() -> None:
    rules = read_rules(BASE, streaming=False)
    assert (rules.topics, rules.starting, rules.ending) == (
        ("orders",),
        Position("earliest"),
        Position("latest"),
    )
    assert rules.columns == DEFAULT_COLUMNS
    assert rules.fail_on_data_loss
    assert not rules.is_filtered
    assert read_rules(BASE, streaming=True).starting == Position("latest")


def test_spark_gives_names_in_lower_case_and_old_names_still_work() -> None:
    rules = read_rules(
        {
            "namesrvaddr": "a:1;b:2",
            "topic": "T, U",
            "maxoffsetspertrigger": "10",
            "maxbytespertrigger": "2m",
            "pulltimeout": "500",
            "group": "g",
            "subexpression": "a || b",
            "fetchoffset.numretries": "2",
            "fetchoffset.retryintervalms": "50",
        },
        streaming=True,
    )
    assert (rules.nameserver, rules.topics, rules.group) == ("a:1;b:2", ("T", "U"), "g")
    assert (rules.max_offsets, rules.max_bytes, rules.timeout_s) == (10, 2 << 20, 0.5)
    assert rules.patience == Patience(2, 0.05)
    assert rules.is_filtered


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ({"startingOffsets": "EARLIEST"}, Position("earliest")),
        ({"startingOffsets": '{"T": {"a": {"0": 1}}}'}, Position(offsets={"T": {"a": {"0": 1}}})),
        ({"startingTimestamp": "1000"}, Position(time_ms=1000)),
        ({"startingTimestamp": "1970-01-01T00:00:01"}, Position(time_ms=1000)),
        ({"startingOffsetsByTimestamp": '{"T": 5}'}, Position(times_ms={"T": 5})),
        ({"startingOffsets": "committed", "groupId": "g"}, Position("committed")),
    ],
)
def test_where_to_start(given: dict[str, str], position: Position) -> None:
    assert read_rules(BASE | given, streaming=True).starting == position


def test_how_much_a_batch_waits_for() -> None:
    rules = read_rules(BASE | {"minOffsetsPerTrigger": "5"}, streaming=True)
    assert (rules.min_offsets, rules.delay_max_ms) == (5, 900_000)
    given = BASE | {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "30s"}
    assert read_rules(given, streaming=True).delay_max_ms == 30_000
    assert read_rules(BASE, streaming=True).min_offsets is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"maxTriggerDelay": "1m"}, "how long minOffsetsPerTrigger may hold"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "such as 500ms, 30s"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "=5 is above maxOffsets"),
        ({"nameServer": ""}, "needs the option 'nameServer'"),
        ({"subscribe": ""}, "exactly one of subscribe, subscribePattern and assign, and none is"),
        ({"subscribePattern": "a.*"}, "subscribe and subscribePattern are given"),
        ({"assign": '{"T": [0]}'}, "subscribe and assign are given"),
        ({"topic": "other"}, "subscribe is given twice"),
        ({"subscribe": "no good"}, "subscribe cannot be used"),
        ({"subscribe": "", "subscribePattern": "a("}, "not a valid regular expression"),
        ({"subscribe": "", "assign": "[1]"}, "set it to an object"),
        ({"subscribe": "", "assign": "{"}, "is not valid JSON"),
        ({"kafka.bootstrap.servers": "k:9092"}, "did you mean 'nameServer'?"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"startingOffsets": "first"}, "set it to earliest, latest, committed or to JSON"),
        ({"endingOffsets": "last"}, "set it to latest or to JSON"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "contradict each other"),
        ({"startingOffsets": "committed"}, "groupId"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "contradict each other"),
        ({"endingTimestamp": "1"}, "a stream has no end"),
        ({"startingTimestamp": "yesterday"}, "write 2030-05-01T12:00"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "latest, error"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"maxBytesPerTrigger": "lots"}, "such as 64m"),
        ({"minPartitions": "-1"}, "at least 1"),
        ({"commitOffsets": "onBatch"}, "set groupId as well"),
        ({"commitOffsets": "always"}, "none, onbatch"),
        ({"groupId": "a b"}, "groupId cannot be used"),
        ({"groupId": "a", "groupIdPrefix": "b"}, "contradict each other"),
        ({"subExpression": "a > 5 AND", "filterType": "sql92"}, "is no filter of type SQL92"),
        ({"subExpression": "flag", "filterType": "sql92"}, "the property flag alone"),
        (
            {"subExpression": "a > 5 ADN b = 1", "filterType": "sql92"},
            "expected an operator before 'ADN b",
        ),
        ({"subExpression": "price > 5"}, "set filterType=sql92"),
        ({"subExpression": "price > 5", "filterType": "tag"}, None),
        ({"columns": "bodi"}, "did you mean 'body'?"),
        ({"columns": "topic", "includeBody": "true"}, "contradict each other"),
        ({"tlsKey": "key.pem", "tls": "true"}, "needs its certificate"),
        ({"accessKey": "secret-7"}, "cannot use the option 'accessKey'"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(given: dict[str, str], says: str | None) -> None:
    if says is None:  # by tag anything goes
        assert read_rules(BASE | given, streaming=True).is_filtered
        return
    with pytest.raises(PipelineError) as caught:
        read_rules(BASE | given, streaming=True)
    assert says in str(caught.value)
    assert "secret-7" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_batch_may_end_somewhere_but_not_before_everything() -> None:
    assert read_rules(BASE | {"endingTimestamp": "7"}, streaming=False).ending.time_ms == 7
    for given, says in (
        ({"endingOffsets": "earliest"}, "set it to latest or to JSON"),
        ({"startingOffsets": "latest"}, "a batch that starts at latest is empty"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "ends before it starts"),
    ):
        with pytest.raises(PipelineError, match=says):
            read_rules(BASE | given, streaming=False)


def test_rules_travel() -> None:
    rules = read_rules(BASE, streaming=True)
    assert pickle.loads(pickle.dumps(rules)) == rules
