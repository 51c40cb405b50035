"""Publishing on several brokers; with real ones: tests/integration/spark."""

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.publishing import publish
from rockhopper.pipeline.sink.rules import read_rules
from rockhopper.pipeline.sink.staging import StagedPart

RULES = read_rules(
    {
        "nameServer": "127.0.0.1:1",
        "topic": "T",
        "delivery": "exactly-once",
        "sinkId": "s",
        "retries": "0",
    },
    streaming=False,
)


def test_nothing_was_written() -> None:
    assert not publish(RULES, [])


def test_a_part_counts_what_all_brokers_have_of_it() -> None:
    assert StagedPart("s", 0, "0.1", 0, {"a": 3, "b": 4}).message_count == 7


def test_without_a_name_service_nothing_is_published() -> None:
    with pytest.raises(PipelineError, match="found no broker to publish on, after 1 tries"):
        publish(RULES, [StagedPart("s", 0, "0.1", 0, {"broker-a": 1})])
