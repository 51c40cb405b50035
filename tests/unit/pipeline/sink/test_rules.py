"""The options of the sink: what they mean, and every contradiction."""

import pickle

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.retrying import Patience
from rockhopper.pipeline.sink.rules import SinkRules, read_rules

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}

LETTERS = {"onBadRow": "deadletter"}


def rules(streaming: bool = True, **given: str) -> SinkRules:
    return read_rules(BASE | given, streaming=streaming)


def test_the_least_that_must_be_said() -> None:
    found = rules()
    assert (found.topic, found.is_exactly_once, found.compress_over) == ("orders", False, 4096)
    assert found.patience == Patience(20, 0.5)
    assert pickle.loads(pickle.dumps(found)) == found


def test_rows_that_cannot_be_sent() -> None:
    assert not rules().sets_bad_rows_aside
    assert rules(onBadRow="drop").sets_bad_rows_aside
    assert rules(onBadRow="drop").topics == ("orders",)
    found = rules(onBadRow="deadletter", deadLetterTopic="bad")
    assert (found.sets_bad_rows_aside, found.dead_letter_topic) == (True, "bad")
    assert found.topics == ("orders", "bad")


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
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, True, "only brokers may write"),
        ({"producerGroup": "a b"}, True, "producerGroup cannot be used"),
        ({"delivery": "once"}, True, "at-least-once, exactly-once"),
        ({"sinkId": "s"}, True, "sinkId is for delivery=exactly-once"),
        ({"broker": "b"}, True, "broker is for delivery=exactly-once"),
        ({"delivery": "exactly-once", "batchId": "3"}, True, "leave the option batchId out"),
        ({"delivery": "exactly-once"}, False, "needs the option sinkId"),
        ({"delivery": "exactly-once", "sinkId": "s" * 256}, True, "256 characters"),
        ({"delivery": "exactly-once", "compressOver": "1k"}, True, "bodies as they are"),
        ({"batchBytes": "5m"}, True, "4m or less"),
        ({"onBadRow": "skip"}, True, "fail, deadletter, drop"),
        ({"onBadRow": "deadletter"}, True, "needs the option deadLetterTopic"),
        ({"deadLetterTopic": "bad"}, True, "is for onBadRow=deadletter"),
        ({"onBadRow": "drop", "deadLetterTopic": "bad"}, True, "is for onBadRow=deadletter"),
        (LETTERS | {"deadLetterTopic": "no good"}, True, "deadLetterTopic cannot be used"),
        (LETTERS | {"deadLetterTopic": "orders"}, True, "the good rows go to"),
        (LETTERS | {"deadLetterTopic": "%DLQ%g"}, True, "name an ordinary topic"),
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
