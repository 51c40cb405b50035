"""Static topics: where a logical offset is, who leads a queue, and what is refused of a file."""

from typing import Any

import pytest

from rockhopper.broker.features.static_topics.mappings import MappingItem, StaticTopic

OLD = MappingItem(0, 3, "a", 0, 0, 10)
EMPTY = MappingItem(1, 4, "b", 10, 5, 5)
NEW = MappingItem(2, 7, "c", 10, 100, -1)
UNDECIDED = MappingItem(3, 8, "d", -1, 0, -1)


def static(broker: str = "c", *pieces: MappingItem) -> StaticTopic:
    return StaticTopic("orders", broker, 4, 9, {1: list(pieces) or [OLD, EMPTY, NEW], 2: []})


@pytest.mark.parametrize(
    ("piece", "is_ended", "is_empty"),
    [
        (OLD, True, False),
        (EMPTY, True, True),
        (NEW, False, False),
        (MappingItem(0, 0, "a", 0, 5, 3), False, False),
        (MappingItem(0, 0, "a", 0, 0, 0), True, True),
    ],
)
def test_a_piece_grows_or_has_ended(piece: MappingItem, is_ended: bool, is_empty: bool) -> None:
    assert (piece.is_ended, piece.is_empty) == (is_ended, is_empty)


@pytest.mark.parametrize(
    ("piece", "physical", "logical"),
    [(OLD, 0, 0), (OLD, 10, 10), (OLD, 11, 10), (NEW, 100, 10), (NEW, 105, 15), (NEW, 90, 10)],
)
def test_a_physical_offset_has_a_logical_one(
    piece: MappingItem, physical: int, logical: int
) -> None:
    assert piece.logical(physical) == logical


def test_a_logical_offset_has_a_physical_one() -> None:
    assert [NEW.physical(offset) for offset in (10, 15)] == [100, 105]


@pytest.mark.parametrize(("offset", "piece"), [(-5, OLD), (0, OLD), (9, OLD), (10, NEW), (99, NEW)])
def test_an_offset_is_in_the_piece_that_has_messages_there(offset: int, piece: MappingItem) -> None:
    assert static().piece_at(1, offset) == piece


def test_pieces_without_messages_or_a_place_are_left_out() -> None:
    topic = static("d", OLD, EMPTY, NEW, UNDECIDED)
    assert topic.pieces(1) == [OLD, NEW]
    assert topic.pieces(2) == topic.pieces(9) == []
    assert topic.piece_at(9, 5) is None


@pytest.mark.parametrize(("broker", "led"), [("c", [1]), ("a", []), ("b", [])])
def test_the_broker_of_the_last_piece_leads(broker: str, led: list[int]) -> None:
    topic = static(broker)
    assert topic.led == led
    assert topic.leader(1) == (NEW if led else None)
    assert topic.leader(9) is None
    assert topic.info()["currIdMap"] == ({"1": 7} if led else {})


def test_two_differ_in_their_pieces_or_only_in_offsets() -> None:
    moved = static("c", OLD, EMPTY, NEW._replace(start_offset=200, logic_offset=12))
    assert static().has_same_pieces(moved)
    assert static() != moved
    assert not static().has_same_pieces(static("c", OLD, NEW))
    assert not static().has_same_pieces(static("c", OLD, EMPTY, NEW._replace(broker="z")))


def test_a_topic_comes_back_from_its_file() -> None:
    topic = static()
    again = StaticTopic.from_json(topic.to_json())
    assert again == topic
    assert hash(again) == hash(topic)
    assert again.queues == {1: [OLD, EMPTY, NEW]}
    assert (again.total, again.epoch, again.broker) == (4, 9, "c")


def test_a_piece_in_a_file_needs_only_its_queue() -> None:
    piece = {"queueId": 3, "bname": "a"}
    assert MappingItem.from_json(piece) == MappingItem(0, 3, "a", 0, 0, -1, -1, -1)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": None, "hostedQueues": 7},
        {"hostedQueues": {"x": []}},
        {"hostedQueues": {"0": [{"queueId": 1}]}},
        {"hostedQueues": {"0": [{"queueId": "x", "bname": "a"}]}},
        {"totalQueues": "many"},
    ],
)
def test_nonsense_is_a_value_error(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        StaticTopic.from_json(static().to_json() | change)
    with pytest.raises(ValueError):  # noqa: PT011
        StaticTopic.from_json([])
