"""A stream's offset: its document comes back, and says where a batch begins in each queue."""

from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.network.stream_offset import GUESSED, StreamOffset, place_of

A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
OLD = {"a": ("x",)}
NEW = {"a": ("y", "x")}


def offset(at: dict[MessageQueue, int], **fields: Any) -> StreamOffset:
    return StreamOffset(at, fields.pop("initial", {}), **fields)


@pytest.mark.parametrize(
    "kept",
    [
        offset({A: 5}),
        offset({A: 5, B: 6}, initial={A: 1}, added={B: 2}, ids={("t", "a"): "x"}, times={A: 9}),
        offset({A: 5}, brokers=("a", "b"), started_ms=77, is_fresh=True),
        offset({A: 5}, logs={"a": ("y", "x")}, back={A: 3}),
        offset({}, brokers=()),
    ],
)
def test_a_document_comes_back(kept: StreamOffset) -> None:
    document = kept.document()
    assert StreamOffset.read(document) == kept
    assert list(document) == sorted(document)


def test_what_is_not_known_is_not_said() -> None:
    assert offset({A: 5}).document() == {
        "added": {},
        "initial": {},
        "offsets": {"t": {"a": {"0": 5}}},
    }
    assert offset({A: 5}).document({A: 7})["offsets"] == {"t": {"a": {"0": 7}}}


def test_places_are_topics_on_brokers() -> None:
    assert offset({A: 1, B: 2, A._replace(queue_id=3): 4}).places == {place_of(A), place_of(B)}


@pytest.mark.parametrize(
    ("start", "end", "begins"),
    [
        (offset({A: 5}), offset({A: 9}), {A: 5}),
        (offset({A: 5}), offset({A: 9, B: 4}, added={B: 2}), {A: 5, B: 2}),
        (offset({A: 5}), offset({A: 9, B: 4}), {A: 5, B: 4}),
        (offset({A: 5, B: 1}), offset({A: 9}), {A: 5}),
        (offset({A: 5}), offset({A: 3}), {A: 0}),
        (offset({A: 5}, logs=OLD), offset({A: 9}, logs=NEW, back={A: 3}), {A: 3}),
        (offset({A: 5}, logs=OLD), offset({A: 4}, logs=NEW, back={A: 3}), {A: 3}),
        (offset({A: 9}, logs=NEW, back={A: 3}), offset({A: 9}, logs=NEW, back={A: 3}), {A: 9}),
        (offset({A: 0}, is_fresh=True), offset({A: 9}, initial={A: 6}), {A: 6}),
    ],
)
def test_a_batch_begins_where_the_last_one_ended(
    start: StreamOffset, end: StreamOffset, begins: dict[MessageQueue, int]
) -> None:
    assert start.begins(end) == begins


@pytest.mark.parametrize(
    ("before", "now", "first"),
    [
        ("x", "x", 5),
        ("x", "y", 2),
        ("", "y", 5),
        ("x", "", 5),
        ("", f"{GUESSED}1", 2),
        (f"{GUESSED}1", f"{GUESSED}1", 5),
        (f"{GUESSED}1", f"{GUESSED}2", 2),
        (f"{GUESSED}1", "y", 5),
    ],
)
def test_a_topic_made_anew_begins_where_it_was_added(before: str, now: str, first: int) -> None:
    place = place_of(A)
    start = offset({A: 5}, ids={place: before} if before else {})
    end = offset({A: 9}, added={A: 2}, ids={place: now} if now else {})
    assert start.begins(end) == {A: first}


def test_guesses_are_counted_and_are_no_ids() -> None:
    at = offset({A: 5}, ids={place_of(A): "x"})
    assert at.topic_id(A) == "x"
    for number in (1, 2):
        at.count_guess(place_of(A))
        assert at.ids[place_of(A)] == f"{GUESSED}{number}"
    assert at.topic_id(A) == at.topic_id(B) == ""
