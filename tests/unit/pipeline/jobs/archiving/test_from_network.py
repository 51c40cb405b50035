"""Archiving over the network: which ranges are new, and whether topics are still the same."""

from pathlib import Path
from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.decoder import decode, walk
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving import from_network
from rockhopper.pipeline.jobs.archiving.from_network import (
    NetworkWork,
    find_new_ranges,
    rules_for,
)
from rockhopper.pipeline.jobs.archiving.manifest import Reached
from rockhopper.pipeline.jobs.archiving.selection import Selection
from rockhopper.pipeline.jobs.archiving.writing import FILE_COLUMNS, WriteTarget
from rockhopper.pipeline.network.planning import Range
from rockhopper.pipeline.remote import LogPasts
from tests.support.records import encode_message
from tests.support.told_brokers import ToldBrokers, told

A0, A1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
B0 = MessageQueue("T", "broker-b", 0)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ToldBrokers:
    """Two queues on one broker, one on another; brokers have ids."""
    found = ToldBrokers({A0: (5, 9), A1: (0, 0), B0: (0, 4)})
    found.ids = {("T", "broker-a"): "IA", ("T", "broker-b"): "IB"}
    return told(monkeypatch, found, "network.discovery")


def ranges(archived: Reached | None = None, *, allow_gaps: bool = False, say: Any = None) -> Any:
    rules = rules_for("h:1", Selection(("T",)), allow_gaps=allow_gaps)
    return find_new_ranges(rules, archived or Reached(), say or (lambda _: None))


def positions(**offsets: int) -> dict[str, dict[str, dict[str, int]]]:
    """Next offsets by ``a0``, ``a1`` and ``b0``."""
    found: dict[str, dict[str, int]] = {}
    for name, offset in offsets.items():
        found.setdefault(f"broker-{name[0]}", {})[name[1]] = offset
    return {"T": found}


IDS = {"T": {"broker-a": "IA", "broker-b": "IB"}}


def test_a_first_run_takes_all_there_is_and_knows_empty_queues_too(brokers: ToldBrokers) -> None:
    found, reached = ranges(allow_gaps=True)

    assert found == [Range(A0, 5, 9, "IA"), Range(A1, 0, 0, "IA"), Range(B0, 0, 4, "IB")]
    assert reached == Reached(positions(a0=9, a1=0, b0=4), IDS)


def test_a_queue_that_its_topic_has_left_is_named(brokers: ToldBrokers) -> None:
    archived = Reached(positions(a0=9, a1=0, b0=4), IDS)
    del brokers.held[A1]
    brokers.unserved = {A1: 3}

    with pytest.raises(PipelineError, match=r"T/broker-a/1 is archived up to 0 of 3.*--allow-gaps"):
        ranges(archived)
    said: list[str] = []
    assert ranges(archived, allow_gaps=True, say=said.append)[0] == []
    assert len(said) == 1
    brokers.unserved = {A1: 0}
    assert ranges(archived)[0] == []


def test_a_queue_that_lost_its_beginning_before_the_first_run_has_no_gap(
    brokers: ToldBrokers,
) -> None:
    assert ranges()[0][0] == Range(A0, 5, 9, "IA")


def test_a_later_run_takes_what_is_new(brokers: ToldBrokers) -> None:
    found, reached = ranges(Reached(positions(a0=7, a1=0, b0=4), IDS))

    assert found == [Range(A0, 7, 9, "IA")]
    assert reached == Reached(positions(a0=9, a1=0, b0=4), IDS)


def test_queues_of_brokers_that_are_away_keep_their_positions(brokers: ToldBrokers) -> None:
    del brokers.held[B0]

    found, reached = ranges(Reached(positions(a0=9, a1=0, b0=2), IDS))

    assert found == []
    assert reached.positions == positions(a0=9, a1=0, b0=2)


def test_messages_that_expired_meanwhile_are_a_gap(brokers: ToldBrokers) -> None:
    archived = Reached(positions(a0=4, a1=0, b0=4), IDS)

    with pytest.raises(PipelineError, match=r"T/broker-a/0 begins at offset 5, .* ends at 4: "):
        ranges(archived)
    assert ranges(archived, allow_gaps=True)[0] == [Range(A0, 5, 9, "IA")]


def test_a_queue_that_ends_in_front_of_the_archive_is_another(brokers: ToldBrokers) -> None:
    with pytest.raises(PipelineError, match=r"ends at offset 9, and the archive goes to 10 alr"):
        ranges(Reached(positions(a0=10), IDS), allow_gaps=True)


def test_a_log_that_was_cut_behind_the_archive_is_another(brokers: ToldBrokers) -> None:
    """Its new messages have the numbers of others in the archive, be they fewer or more."""
    brokers.past = LogPasts({"broker-a": ("new", "old")}, {A0: 6, B0: 4})
    archived = Reached(positions(a0=7, a1=0, b0=4), IDS, logs={"broker-a": ["old"]})
    with pytest.raises(PipelineError, match=r"up to offset 7, .* has ended at 6 since"):
        ranges(archived, allow_gaps=True)
    assert brokers.read_in == [{"broker-a": ["old"]}]


def test_the_epochs_of_logs_are_kept_with_the_positions(brokers: ToldBrokers) -> None:
    brokers.past = LogPasts({"broker-a": ("new", "old")}, {A0: 9})
    archived = Reached(positions(a0=9, b0=4), IDS, logs={"broker-b": ["x"], "broker-a": ["old"]})
    assert ranges(archived)[1].logs == {"broker-a": ("new", "old"), "broker-b": ["x"]}


def test_a_broker_that_has_another_name_now_is_not_archived_twice(brokers: ToldBrokers) -> None:
    archived = Reached(positions(b0=4), {"T": {"broker-x": "IA", "broker-b": "IB"}})
    with pytest.raises(PipelineError, match=r"broker-x .* is called broker-a now"):
        ranges(archived)


def test_a_topic_of_another_id_is_another(brokers: ToldBrokers) -> None:
    archived = Reached(positions(a0=9, a1=0, b0=4), {"T": {"broker-a": "IA", "broker-b": "OLD"}})

    with pytest.raises(PipelineError, match="the topic 'T' on broker-b was deleted and recreated"):
        ranges(archived, allow_gaps=True)


def test_an_id_that_is_known_only_now_is_taken_for_the_topics(brokers: ToldBrokers) -> None:
    assert ranges(Reached(positions(a0=9, a1=0, b0=4)))[1].topic_ids == IDS


def test_without_ids_the_last_message_tells(brokers: ToldBrokers) -> None:
    brokers.ids = {}
    brokers.times = {(A0, 8): 800, (B0, 3): 400}
    _, first = ranges()
    assert first == Reached(positions(a0=9, a1=0, b0=4), {}, positions(a0=800, b0=400))

    assert ranges(first) == ([], first)

    brokers.times[A0, 8] = 801
    with pytest.raises(PipelineError, match="the topic 'T' on broker-a was deleted and recreated"):
        ranges(first)


def test_the_last_message_that_has_expired_tells_nothing(brokers: ToldBrokers) -> None:
    brokers.ids, brokers.times = {}, {(A0, 4): 801, (A0, 8): 900}
    archived = Reached(positions(a0=5, a1=0, b0=4), {}, positions(a0=800))

    assert ranges(archived)[0] == [Range(A0, 5, 9)]


def test_times_are_forgotten_once_there_are_ids(brokers: ToldBrokers) -> None:
    archived = Reached(positions(a0=9, a1=0, b0=4), {}, positions(a0=800, b0=400))
    assert ranges(archived)[1] == Reached(archived.positions, IDS)


def test_a_topic_that_is_gone_on_some_of_its_brokers_is_named(brokers: ToldBrokers) -> None:
    del brokers.held[B0]
    brokers.ids["T", "broker-b"] = None
    brokers.ids["other", "broker-b"] = None
    said: list[str] = []
    archived = positions(a0=9, a1=0, b0=2) | {"other": {"broker-b": {"0": 3}}}

    ranges(Reached(archived, IDS), say=said.append)

    assert said == [
        "the topic 'T' was deleted on broker-b: what was not archived of it is lost, and its other "
        "brokers are archived"
    ]


@pytest.mark.parametrize(
    ("selection", "topics", "pattern"),
    [
        (Selection(("a", "b")), ("a", "b"), ""),
        (Selection(pattern="a.*"), (), "a.*"),
        (Selection(), (), ".*"),
    ],
)
def test_topics_are_read_as_they_were_chosen(
    selection: Selection, topics: tuple[str, ...], pattern: str
) -> None:
    rules = rules_for("h:1", selection, allow_gaps=False)
    assert (tuple(rules.topics), rules.pattern) == (topics, pattern)
    assert (rules.nameserver, rules.columns, rules.fail_on_data_loss) == ("h:1", FILE_COLUMNS, True)
    assert not rules_for("h:1", selection, allow_gaps=True).fail_on_data_loss


def test_a_task_writes_what_its_ranges_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode_message(topic="T", body=b"x", store_time_ms=1)
    (batch,) = decode(data, walk(data, 0, len(data)).offsets)
    read: list[tuple[Range, ...]] = []

    def read_ranges(wanted: tuple[Range, ...], _rules: object) -> Any:
        read.append(wanted)
        yield batch.slice(0, 0)
        yield from [batch] * wanted[0].count

    monkeypatch.setattr(from_network, "read_ranges", read_ranges)
    (tmp_path / "staging").mkdir()
    ranges = (Range(A0, 5, 7), Range(A0._replace(topic="U"), 0, 1), Range(B0, 4, 4))
    rules = rules_for("h:1", Selection(), allow_gaps=False)

    work = NetworkWork(rules, WriteTarget(str(tmp_path), "staging", 1))
    written = work((0, ranges))

    assert read == [(each,) for each in ranges]
    assert {file.topic: file.rows for file in written.files} == {"T": 2, "U": 1}
