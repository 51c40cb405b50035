"""What became of a stream's queues: topics that went, were made anew, came back, or are new."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.going_on import GoingOn
from rockhopper.pipeline.network.positions import Offsets
from rockhopper.pipeline.network.rules import TopicReadRules, read_rules
from rockhopper.pipeline.network.stream_offset import Place, StreamOffset
from rockhopper.pipeline.remote import LogPasts

A0, A1 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)
B0, C0 = MessageQueue("t", "b", 0), MessageQueue("t", "c", 0)
ON_A, ON_B = ("t", "a"), ("t", "b")


class Discovery:
    """Says what a test writes down, and notes what it was asked."""

    def __init__(self) -> None:
        self.gone: set[Place] = set()
        self.ids: dict[Place, str] = {}
        self.past = LogPasts({}, {})
        self.times: dict[MessageQueue, int] = {}
        self.asked_times: list[Offsets] = []
        self.asked: list[tuple[object, ...]] = []
        self.left: Offsets = {}

    def unreadable(self, known: Offsets, held: object) -> Offsets:
        return self.left

    def store_times(self, offsets: Offsets) -> Offsets:
        self.asked_times.append(dict(offsets))
        return {queue: self.times[queue] for queue in offsets if queue in self.times}

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        self.asked.append(("offset_at", queue, time_ms))
        return 40

    def start_of_new(self, queue: MessageQueue, low: int, held: Mapping[Any, Any]) -> int:
        self.asked.append(("start_of_new", queue, low))
        return low + 1


def rules(**options: str) -> TopicReadRules:
    return read_rules({"nameServer": "ns", "subscribe": "t", **options}, streaming=True)


def going_on(discovery: Discovery, **options: str) -> GoingOn:
    made: Any = discovery
    return GoingOn(rules(**options), made)


def offset(at: Offsets, **fields: Any) -> StreamOffset:
    return StreamOffset(at, fields.pop("initial", {}), **fields)


@pytest.fixture
def found() -> Discovery:
    return Discovery()


def test_where_nothing_changed_nothing_changes(found: Discovery) -> None:
    at = offset({A0: 5, B0: 6})
    going_on(found).adjust(at, {A0: (0, 9), B0: (6, 6)}, None)
    assert at == offset({A0: 5, B0: 6})
    assert found.asked == []
    assert found.asked_times == []


def test_a_topic_that_is_gone_is_lost(found: Discovery) -> None:
    found.gone = {ON_A}
    with pytest.raises(PipelineError) as error:
        going_on(found).adjust(offset({A1: 7, A0: 5}), {}, None)
    assert str(error.value) == (
        "the topic 't' on a no longer exists, and this query has read that one (up to "
        "queue/offset 0/5, 1/7): set failOnDataLoss=false to continue without it, or start with a "
        "new checkpoint"
    )


def test_one_goes_on_without_it_where_that_is_wanted(
    found: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    found.gone = {ON_A, ("other", "a")}
    it = going_on(found, failOnDataLoss="false")
    at = offset({A0: 5, A1: 6, B0: 7}, times={A0: 1, B0: 2}, ids={ON_A: "x", ON_B: "y"})
    with caplog.at_level(logging.WARNING):
        it.adjust(at, {B0: (0, 9)}, None)
    assert at == offset({B0: 7}, times={B0: 2}, ids={ON_B: "y"})
    (said,) = caplog.messages
    assert said.startswith("the topic 't' on a no longer exists")
    assert said.endswith("continue without it, because failOnDataLoss=false")


def test_a_topic_that_is_not_subscribed_any_more_may_go(found: Discovery) -> None:
    found.gone = {("other", "a")}
    at = offset({A0: 5, MessageQueue("other", "a", 0): 3})
    going_on(found).adjust(at, {A0: (0, 9)}, None)
    assert at == offset({A0: 5})


def test_a_queue_that_is_not_served_any_more_and_not_read_to_its_end_is_named(
    found: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    found.left = {A1: 9}
    with pytest.raises(PipelineError, match=r"t/a/1 is no longer read.* up to 6 of 9"):
        going_on(found).adjust(offset({A0: 5, A1: 6}), {A0: (0, 9)}, None)
    it = going_on(found, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            it.adjust(offset({A0: 5, A1: 6}), {A0: (0, 9)}, None)
    assert len(caplog.messages) == 1


def test_it_is_said_once(found: Discovery, caplog: pytest.LogCaptureFixture) -> None:
    found.gone = {ON_A}
    it = going_on(found, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            it.adjust(offset({A0: 5}), {}, None)
    assert len(caplog.messages) == 1


def test_a_topic_of_another_id_is_another_one(found: Discovery) -> None:
    found.ids = {ON_A: "new", ON_B: "y"}
    at = offset({A0: 5, B0: 6}, ids={ON_A: "old", ON_B: "y"})
    with pytest.raises(PipelineError, match=r"was deleted and recreated.*read it from its beginn"):
        going_on(found).adjust(at, {A0: (0, 9), B0: (0, 9)}, None)


def test_it_is_read_from_its_beginning_on_where_that_is_wanted(found: Discovery) -> None:
    found.ids = {ON_A: "new", ON_B: "y"}
    at = offset({A0: 5, B0: 6}, initial={A0: 3}, times={A0: 8}, ids={ON_A: "old", ON_B: "y"})
    going_on(found, failOnDataLoss="false").adjust(at, {A0: (2, 9), B0: (0, 9)}, None)
    assert at.offsets == {A0: 2, B0: 6}
    assert at.added == {A0: 2}
    assert at.initial == {A0: 3}
    assert at.times == {}
    assert at.ids == {ON_A: "new", ON_B: "y"}


def test_a_fresh_offset_begins_anew_as_well(found: Discovery) -> None:
    found.ids = {ON_A: "new"}
    at = offset({A0: 5}, initial={A0: 3}, ids={ON_A: "old"}, is_fresh=True)
    going_on(found, failOnDataLoss="false").adjust(at, {A0: (2, 9)}, None)
    assert (at.offsets, at.initial) == ({A0: 2}, {A0: 2})


@pytest.mark.parametrize("now", ["", "old"])
def test_an_id_that_is_not_known_now_says_nothing(found: Discovery, now: str) -> None:
    found.ids = {ON_A: now}
    at = offset({A0: 5}, ids={ON_A: "old"})
    going_on(found).adjust(at, {A0: (0, 9)}, None)
    assert (at.offsets, at.ids) == ({A0: 5}, {ON_A: "old"})


def test_offsets_beyond_the_end_begin_anew_where_loss_is_taken(found: Discovery) -> None:
    at = offset({A0: 50})
    going_on(found).adjust(at, {A0: (2, 9)}, None)
    assert at.offsets == {A0: 50}
    going_on(found, failOnDataLoss="false").adjust(at, {A0: (2, 9)}, None)
    assert at.offsets == {A0: 2}


def test_another_time_of_the_message_before_is_another_topic(found: Discovery) -> None:
    found.times = {A0: 1001, B0: 2000}
    at = offset({A0: 5, B0: 6}, times={A0: 1000, B0: 2000})
    going_on(found, failOnDataLoss="false").adjust(at, {A0: (0, 9), B0: (0, 9)}, None)
    assert found.asked_times == [{A0: 4, B0: 5}]
    assert at.offsets == {A0: 0, B0: 6}
    assert at.ids == {}


def test_a_guess_is_counted_where_the_broker_has_no_ids(found: Discovery) -> None:
    found.ids, found.times = {ON_A: ""}, {A0: 1001}
    at = offset({A0: 5}, times={A0: 1000}, ids={ON_A: "~2"})
    going_on(found, failOnDataLoss="false").adjust(at, {A0: (0, 9)}, None)
    assert at.ids == {ON_A: "~3"}


@pytest.mark.parametrize(
    ("held", "begin", "known_ms"),
    [((5, 9), 5, 1000), ((0, 4), 5, 1000), ((0, 9), 5, 0)],
    ids=["expired", "shorter than that", "never asked for"],
)
def test_a_message_that_cannot_be_there_is_not_asked_for(
    found: Discovery, held: tuple[int, int], begin: int, known_ms: int
) -> None:
    at = offset({A0: begin}, times={A0: known_ms})
    going_on(found).adjust(at, {A0: held}, None)
    assert found.asked_times == []


def test_later_only_queues_with_something_new_are_asked(found: Discovery) -> None:
    found.times = {A0: 1000}
    it = going_on(found)
    at = offset({A0: 5}, times={A0: 1000})
    it.adjust(at, {A0: (0, 5)}, None)
    assert len(found.asked_times) == 1
    it.adjust(at, {A0: (0, 5)}, None)
    assert len(found.asked_times) == 1
    it.adjust(at, {A0: (0, 6)}, None)
    assert len(found.asked_times) == 2


def test_where_there_are_ids_times_are_not_asked_for(found: Discovery) -> None:
    found.ids = {ON_A: "x"}
    going_on(found).adjust(offset({A0: 5}, times={A0: 1}, ids={ON_A: "x"}), {A0: (0, 9)}, None)
    assert found.asked_times == []


def test_times_of_the_last_messages_are_noted(found: Discovery) -> None:
    found.times = {A0: 1000, B0: 2000}
    at = offset({A0: 5, A1: 3, B0: 6}, times={B0: 2000, A1: 7}, ids={ON_A: "~1"})
    it = going_on(found)
    it.mark(at, {A0: 8, A1: 0, B0: 6, C0: 4}, {A0: (0, 9), A1: (0, 9), B0: (0, 9)})
    assert found.asked_times == [{A0: 7}]
    assert at.times == {A0: 1000, B0: 2000}


def test_with_ids_they_are_not_needed(found: Discovery) -> None:
    at = offset({A0: 5}, times={A0: 7}, ids={ON_A: "x"})
    going_on(found).mark(at, {A0: 8}, {A0: (0, 9)})
    assert (at.times, found.asked_times) == ({}, [])


def test_a_new_queue_begins_where_the_query_says(found: Discovery) -> None:
    at = offset({A0: 5}, initial={A0: 5})
    going_on(found, startingOffsets="earliest").adjust(at, {A0: (0, 9), B0: (3, 9)}, None)
    assert found.asked == [("start_of_new", B0, 3)]
    assert (at.offsets, at.added, at.initial) == ({A0: 5, B0: 4}, {B0: 4}, {A0: 5})


@pytest.mark.parametrize(
    ("brokers", "begin"), [(None, 3), (("a", "b"), 3), (("a",), 40)], ids=["old", "known", "away"]
)
def test_of_a_broker_that_was_away_messages_from_the_start_on_are_read(
    found: Discovery, brokers: tuple[str, ...] | None, begin: int
) -> None:
    at = offset({A0: 5}, brokers=brokers, started_ms=77)
    going_on(found, startingOffsets="latest").adjust(at, {A0: (0, 9), B0: (3, 9)}, None)
    assert at.offsets[B0] == begin
    assert found.asked == ([("offset_at", B0, 77)] if begin == 40 else [])


def test_only_queues_of_the_target_are_new(found: Discovery) -> None:
    at = offset({A0: 5}, is_fresh=True)
    going_on(found).adjust(at, {A0: (0, 9), B0: (3, 9), C0: (4, 9)}, {A0: 9, C0: 9})
    assert set(at.offsets) == {A0, C0}
    assert set(at.initial) == {C0}


def test_a_log_that_was_cut_is_read_from_there_on(
    found: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    found.past = LogPasts({"a": ("new", "old")}, {A0: 3, A1: 9})
    at = offset({A0: 5, A1: 7}, times={A0: 1}, logs={"a": ("old",)})
    going_on(found).adjust(at, {A0: (0, 8), A1: (0, 8)}, None)
    assert (at.offsets, at.back, at.times) == ({A0: 3, A1: 7}, {A0: 3}, {})
    assert at.logs == {"a": ("new", "old")}
    assert "the log of its broker has ended at 3 since" in caplog.text


def test_a_first_batch_that_was_not_run_begins_at_the_cut(found: Discovery) -> None:
    found.past = LogPasts({"a": ("new",)}, {A0: 3})
    at = offset({A0: 5}, initial={A0: 5}, is_fresh=True)
    going_on(found).adjust(at, {A0: (0, 8)}, None)
    assert (at.offsets, at.initial) == ({A0: 3}, {A0: 3})


def test_a_log_as_it_was_is_gone_on_in(found: Discovery) -> None:
    found.past = LogPasts({"a": ("old",)}, {})
    at = offset({A0: 5}, logs={"a": ("old",), "b": ("other",)})
    going_on(found).adjust(at, {A0: (0, 8)}, None)
    assert (at.offsets, at.back) == ({A0: 5}, {})
    assert at.logs == {"a": ("old",), "b": ("other",)}


def test_a_broker_that_has_another_name_now_is_gone_on_with(
    found: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    found.ids = {ON_B: "x"}
    at = offset({A0: 5}, ids={ON_A: "x"}, initial={A0: 1}, times={A0: 9}, logs={"a": ("e",)})
    start = offset({A0: 5}, ids={ON_A: "x"})
    going_on(found).adjust(at, {B0: (0, 8)}, None)
    assert (at.offsets, at.ids) == ({B0: 5}, {ON_B: "x"})
    assert (at.initial, at.times) == ({B0: 1}, {B0: 9})
    assert at.logs["b"] == ("e",)
    assert start.begins(StreamOffset({B0: 8}, {}, at.added, at.ids)) == {B0: 5}
    assert "is called b now" in caplog.text


def test_a_topic_that_has_come_to_another_broker_as_well_is_read_there(found: Discovery) -> None:
    found.ids = {ON_A: "x", ON_B: "y"}
    at = offset({A0: 5}, ids={ON_A: "x"})
    going_on(found).adjust(at, {A0: (0, 8), B0: (0, 8)}, None)
    assert at.offsets[A0] == 5
    assert B0 in at.offsets
