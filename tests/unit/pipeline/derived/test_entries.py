"""What queues and index must hold of records: units, tags codes, keys, and what is in neither."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rockhopper.pipeline.derived.entries import (
    KIND_KEY,
    KIND_OPTIONAL,
    KIND_TAG,
    UNIT,
    Entries,
    QueueKey,
    impossible_rows,
    is_nameable,
)
from rockhopper.pipeline.store_source.directory import open_store
from rockhopper.protocol.java_hash import index_key_hash, java_string_hash
from tests.support.log_entries import entries_of
from tests.support.written_logs import T0_MS, WrittenLog

PREPARED, COMMITTED, ROLLED_BACK = 1 << 2, 2 << 2, 3 << 2
INNER_BATCH = 1 << 7


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path)


def units(entries: Entries, topic: str, queue_id: int = 0, *, is_batch: bool = False) -> Any:
    return entries.queues()[QueueKey(topic, queue_id, is_batch)]


def keys(entries: Entries) -> list[tuple[int, int, int]]:
    """Hash, commit log offset and kind of every key."""
    found = entries.keys()
    columns = (found[name].tolist() for name in ("hash", "position", "kind"))
    return list(zip(*columns, strict=True))


def test_each_record_has_a_unit_in_its_queue(log: WrittenLog) -> None:
    log.add(2, topic="a", queue_id=0).add(topic="a", queue_id=1).add(topic="b", queue_id=0)
    log.add(topic="a", queue_id=0, queue_offset=9)
    found = entries_of(log)
    assert sorted(map(str, found.queues())) == ["queue 0 of a", "queue 0 of b", "queue 1 of a"]
    mine = units(found, "a")
    assert mine["offset"].tolist() == [0, 1, 9]
    assert mine["position"].tolist() == [log.offsets[0], log.offsets[1], log.offsets[4]]
    assert mine["size"].tolist() == [log.next_of(at) - at for at in log.offsets[:2]] + [
        log.end - log.offsets[4]
    ]
    assert mine["ms"].tolist() == [0, 0, 0]
    assert mine["n"].tolist() == [1, 1, 1]


def test_queues_go_on_over_windows(log: WrittenLog) -> None:
    log.add(1000, topic="a", queue_id=0)
    assert len(open_store(str(log.root)).segments) > 1
    assert units(entries_of(log), "a")["position"].tolist() == log.offsets


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TAGS": "red"}, 112785),  # "red".hashCode() in Java
        ({"TAGS": "größer"}, java_string_hash("größer")),
        ({}, 0),
        ({"TAGS": ""}, 0),
    ],
)
def test_the_code_of_a_unit_is_the_hash_of_its_tag(
    log: WrittenLog, properties: dict[str, str], code: int
) -> None:
    log.add(topic="a", queue_id=0, properties=properties)
    assert units(entries_of(log), "a")["code"].tolist() == [code]


@pytest.mark.parametrize(
    ("level", "wait_ms"), [("1", 1000), ("2", 5000), ("7", 5000), ("0", None), ("x", None)]
)
def test_the_code_of_a_delayed_message_is_when_it_is_due(
    log: WrittenLog, level: str, wait_ms: int | None
) -> None:
    properties = {"TAGS": "red", "DELAY": level}
    log.add(topic="SCHEDULE_TOPIC_XXXX", queue_id=0, properties=properties)
    log.add(topic="other", queue_id=0, properties=properties)
    found = entries_of(log)
    due = 112785 if wait_ms is None else T0_MS + wait_ms
    assert units(found, "SCHEDULE_TOPIC_XXXX")["code"].tolist() == [due]
    assert units(found, "other")["code"].tolist() == [112785]


def test_prepared_and_rolled_back_messages_are_in_no_queue(log: WrittenLog) -> None:
    for flag in (PREPARED, COMMITTED, ROLLED_BACK, 0):
        log.add(topic="a", queue_id=0, sys_flag=flag, properties={"KEYS": "k"})
    found = entries_of(log)
    assert units(found, "a")["offset"].tolist() == [1, 3]
    assert [at for _, at, _ in keys(found)] == [log.offsets[n] for n in (0, 1, 3)]


def test_records_in_front_of_the_deletion_of_their_topic_do_not_count(log: WrittenLog) -> None:
    log.add(3, topic="a", queue_id=0, properties={"KEYS": "k"}).add(topic="b", queue_id=0)
    found = entries_of(log, deleted_topics={"a": log.offsets[2]})
    assert units(found, "a")["offset"].tolist() == [2]
    assert [kind for _, _, kind in keys(found)] == [
        KIND_OPTIONAL,
        KIND_OPTIONAL,
        KIND_KEY,
        KIND_KEY,
    ]


@pytest.mark.parametrize("topic", [".", "..", "a/b", "a\\b", "a\0b", ""])
def test_topics_that_name_no_directory_have_no_queue(log: WrittenLog, topic: str) -> None:
    assert not is_nameable(topic)
    log.add(topic=topic, queue_id=0).add(topic="a", queue_id=0)
    found = entries_of(log)
    assert [str(key) for key in found.queues()] == ["queue 0 of a"]


def test_a_record_that_holds_a_batch_has_one_unit_of_many_messages(log: WrittenLog) -> None:
    batch = {"INNER_NUM": "5", "INNER_BASE": "40"}
    log.add(topic="a", queue_id=0, sys_flag=INNER_BATCH, properties=batch)
    (unit,) = units(entries_of(log), "a", is_batch=True)
    assert (int(unit["offset"]), int(unit["n"])) == (40, 5)


@pytest.mark.parametrize(
    ("count", "base"),
    [
        ("0", "40"),
        ("32768", "40"),
        ("x", "40"),
        ("5", "x"),
        ("5", "1" * 19),
        ("-5", "4"),
        ("5", ""),
    ],
)
def test_one_whose_counts_make_no_sense_is_one_message(
    log: WrittenLog, count: str, base: str
) -> None:
    properties = {"INNER_NUM": count, "INNER_BASE": base}
    log.add(topic="a", queue_id=0, queue_offset=7, sys_flag=INNER_BATCH, properties=properties)
    (unit,) = units(entries_of(log), "a", is_batch=True)
    assert (int(unit["offset"]), int(unit["n"])) == (7, 1)


def test_the_kind_of_a_queue_is_what_the_broker_says_before_what_its_records_look_like(
    log: WrittenLog,
) -> None:
    batch = {"INNER_NUM": "5", "INNER_BASE": "40"}
    log.add(topic="a", queue_id=0, sys_flag=INNER_BATCH, properties=batch)
    log.add(topic="b", queue_id=0)
    found = entries_of(log, known_topics=frozenset({"a"}), batch_topics=frozenset({"b"}))
    assert set(found.queues()) == {QueueKey("a", 0, False), QueueKey("b", 0, True)}


def test_messages_are_in_the_light_queues_that_they_name(log: WrittenLog) -> None:
    light = {"INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y", "INNER_MULTI_QUEUE_OFFSET": "3,8"}
    log.add(topic="a", queue_id=0, properties=light | {"TAGS": "red"})
    log.add(topic="%LMQ%x", queue_id=0, queue_offset=4)
    log.add(topic="a", queue_id=0, properties=light, sys_flag=PREPARED)
    found = entries_of(log)
    mine = units(found, "%LMQ%x")
    assert mine["offset"].tolist() == [3, 4]
    assert mine["position"].tolist() == log.offsets[:2]
    assert units(found, "%LMQ%y")["offset"].tolist() == [8]
    assert units(found, "%LMQ%y")["code"].tolist() == [112785]
    assert units(found, "a")["offset"].tolist() == [0]


def test_a_light_queue_may_have_been_deleted(log: WrittenLog) -> None:
    light = {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "3"}
    log.add(topic="a", properties=light).add(topic="a", properties=light)
    found = entries_of(log, deleted_topics={"%LMQ%x": log.offsets[1]})
    assert units(found, "%LMQ%x")["position"].tolist() == [log.offsets[1]]


def test_keys_of_a_message_first_the_unique_one_then_its_keys_then_its_tag(
    log: WrittenLog,
) -> None:
    log.add(topic="a", properties={"KEYS": "k1  größe k3", "TAGS": "red", "UNIQ_KEY": "U1"})
    log.add(topic="b", properties={"KEYS": "k1"})
    first, second = log.offsets
    plain = [
        (index_key_hash("a", "U1"), first, KIND_KEY),
        (index_key_hash("a", "k1"), first, KIND_KEY),
        (index_key_hash("a", "größe"), first, KIND_KEY),
        (index_key_hash("a", "k3"), first, KIND_KEY),
        (index_key_hash("b", "k1"), second, KIND_KEY),
    ]
    assert keys(entries_of(log)) == plain
    tag = (abs(java_string_hash("a#T#red")), first, KIND_TAG)
    assert keys(entries_of(log, has_tag_keys=True)) == [*plain[:4], tag, plain[4]]
    assert entries_of(log).keys()["ms"].tolist() == [T0_MS] * 4 + [T0_MS + 1]


def test_keys_beyond_the_basic_plane_count_as_two_units(log: WrittenLog) -> None:
    log.add(topic="a", properties={"KEYS": "a😀 b"})
    assert [key for key, _, _ in keys(entries_of(log))] == [
        index_key_hash("a", "a😀"),
        index_key_hash("a", "b"),
    ]


@pytest.mark.parametrize("properties", [{}, {"KEYS": ""}, {"KEYS": "  "}])
def test_without_keys_there_is_nothing_to_index(
    log: WrittenLog, properties: dict[str, str]
) -> None:
    log.add(topic="a", properties=properties)
    found = [key for key, _, _ in keys(entries_of(log))]
    assert found in ([], [index_key_hash("a", "")])


def test_the_index_may_be_left_out(log: WrittenLog) -> None:
    log.add(topic="a")
    found = entries_of(log, with_keys=False)
    assert len(found.keys()) == 0
    assert len(found.queues()) == 1


def made_units(*rows: tuple[int, int, int]) -> Any:
    """Units of (queue offset, commit log offset, messages)."""
    found = np.zeros(len(rows), UNIT)
    for name, column in zip(("offset", "position", "n"), zip(*rows, strict=True), strict=True):
        found[name] = column
    return found


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([(0, 0, 1), (1, 100, 1), (2, 200, 1)], []),
        # A record is no smaller than 91 bytes: at most two fit in between.
        ([(0, 0, 1), (3, 190, 1)], []),
        ([(0, 0, 1), (4, 190, 1)], [1]),
        ([(0, 0, 3), (5, 190, 1)], []),
        ([(0, 0, 3), (6, 190, 1)], [1]),
        ([(0, 0, 1), (900, 200, 1), (1, 300, 1), (2, 400, 1)], [1]),
        ([(0, 0, 1), (900, 200, 1), (901, 300, 1), (2, 400, 1)], [1, 2]),
        ([], []),
    ],
)
def test_units_that_claim_more_messages_than_there_was_room_for(
    rows: list[tuple[int, int, int]], wrong: list[int]
) -> None:
    assert impossible_rows(made_units(*rows) if rows else np.empty(0, UNIT)) == wrong
