"""Offsets as people write them."""

from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.positions import (
    expand_times,
    from_document,
    parse_json,
    resolve_json,
    to_document,
)

QUEUES = [MessageQueue("T", "a", 0), MessageQueue("T", "a", 10), MessageQueue("T", "a", 2)]
TWO_BROKERS = [MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)]


def test_a_document_has_its_keys_in_one_order_and_comes_back() -> None:
    offsets = {queue: number for number, queue in enumerate(QUEUES)}
    backwards = dict(reversed(list(offsets.items())))
    assert str(to_document(offsets)) == str(to_document(backwards))
    assert from_document(to_document(offsets)) == offsets


def test_three_levels_and_two_where_one_broker_has_the_topic() -> None:
    three = resolve_json("startingOffsets", {"T": {"a": {"0": 5, "2": -1}}}, QUEUES)
    two = resolve_json("startingOffsets", {"T": {"0": 5, "2": -1}}, QUEUES)
    assert three == two == {QUEUES[0]: 5, QUEUES[2]: -1}


@pytest.mark.parametrize(
    ("document", "queues", "says"),
    [
        ({"U": {"0": 1}}, QUEUES, "names the topic 'U', which is not read"),
        ({"T": {"a": {"7": 1}}}, QUEUES, "the topic has a/0, a/2, a/10"),
        ({"T": {"c": {"0": 1}}}, QUEUES, "on 'c', which does not exist"),
        ({"T": {"0": 1}}, TWO_BROKERS, "names no broker for 'T', which is on a, b"),
        ({"T": 5}, QUEUES, "says 5 for 'T'"),
        ({"T": {"a": {"0": 1}, "1": 2}}, QUEUES, "mixes queues and brokers"),
        ({"T": {"a": {"0": -3}}}, QUEUES, "-1 for the end or -2 for the beginning"),
        ({"T": {"a": {"zero": 1}}}, QUEUES, "queue 'zero'"),
        ({"T": {"a": {"0": "1"}}}, QUEUES, "says '1'"),
    ],
)
def test_what_cannot_be_resolved_is_said(
    document: dict[str, Any], queues: list[MessageQueue], says: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        resolve_json("startingOffsets", document, queues)
    assert says in str(caught.value)


@pytest.mark.parametrize("document", [{"T": {"0": 1000}}, {"T": {"a": {"0": 1000}}}])
def test_times_in_kafkas_form_and_in_ours(document: dict[str, Any]) -> None:
    spread = expand_times(document, QUEUES)
    found = resolve_json("startingOffsetsByTimestamp", spread, QUEUES)
    assert found == {MessageQueue("T", "a", 0): 1000}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"T": {"0": 1}}, "write topic -> broker -> queue -> ms"),
        (
            {"T": "2026-11-20"},
            "says '2026-11-20' for queue '0' of 'T': a time is a number, in milliseconds",
        ),
        ({"T": {"c": 1}}, "names the broker 'c' for 'T', which is on a, b: correct it"),
    ],
)
def test_what_is_wrong_with_times_is_said(document: dict[str, Any], says: str) -> None:
    spread = expand_times(document, TWO_BROKERS)
    with pytest.raises(PipelineError) as caught:
        resolve_json("startingOffsetsByTimestamp", spread, TWO_BROKERS)
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", "5"])
def test_an_option_that_is_no_object(text: str) -> None:
    with pytest.raises(PipelineError, match="endingOffsets"):
        parse_json("endingOffsets", text)
