"""Reviving: what nobody acknowledged goes to the retry topic, or the dead letters, and once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.pop import reviving as module
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.files.errors import DiskFullError, RecordTooLargeError
from rockhopper.broker.store.put import MessageToStore
from rockhopper.protocol.properties import PROPERTIES_SIZE_BYTES_MAX, encode_properties
from tests.support.pop_world import GROUP, RETRY, TOPIC, PopWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PopWorld]:
    made = PopWorld(tmp_path / "store", retry_max_times=2)
    yield made
    made.abandon()


def due(world: PopWorld, count: int = 1) -> None:
    """Messages that are visible again and not yet copied."""
    for number in range(count):
        world.send(b"%d" % number, "KEYS\x01k\x02")
    assert len(world.pop(count)) == count
    world.clock.advance(1000)


def copies(world: PopWorld) -> int:
    return world.store.reading.queue_range(RETRY, 0)[1]


def test_a_copy_carries_where_it_comes_from(world: PopWorld) -> None:
    due(world)
    reviving = world.pop_service.reviving
    world.clock.advance(500)
    assert reviving.behind_ms == 500
    assert reviving.turn()
    assert reviving.behind_ms == 0
    (again,) = world.pop()
    assert again.message.reconsume_times == 1
    assert again.message.properties["KEYS"] == "k"
    assert again.message.properties["ORIGIN_MESSAGE_ID"]
    assert again.message.properties["1ST_POP_TIME"] == str(again.info.pop_ms - 1500)
    assert (reviving.revived, reviving.revived_of) == (1, {(GROUP, TOPIC): 1})


def test_the_last_copy_is_a_dead_letter(world: PopWorld) -> None:
    world.send(b"a")
    for _ in range(3):
        assert len(world.pop()) == 1
        world.pass_time(1000)
    assert world.pop() == []
    (dead,) = world.dead()
    assert dead.reconsume_times == 3
    assert dead.properties["RETRY_TOPIC"] == TOPIC
    assert "POP_CK" not in dead.properties
    reviving = world.pop_service.reviving
    assert (reviving.revived, reviving.buried) == (2, 1)


def test_a_turn_copies_only_so_many(world: PopWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MESSAGES_PER_TURN", 2)
    due(world, 5)
    counts = []
    for _ in range(3):
        assert world.pop_service.reviving.turn()
        counts.append(copies(world))
    assert counts[-1] <= 5
    assert counts == sorted(counts)
    while copies(world) < 5:
        assert world.pop_service.reviving.turn()
    world.pass_time(0)
    assert copies(world) == 5


@pytest.mark.parametrize("step", ["check_writable", "commit"])
def test_while_the_store_refuses_everything_waits(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    due(world, 2)
    reviving = world.pop_service.reviving

    def refuse() -> None:
        raise DiskFullError("full")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(world.store, step, refuse)
        assert not reviving.turn()
    assert any("wait" in entry["event"] for entry in logs)
    assert reviving.revived == 0
    if step == "check_writable":
        assert reviving.turn()
        assert copies(world) == 2
        assert reviving.revived == 2


def test_a_message_that_is_gone_is_named_and_settled(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(world)
    reviving = world.pop_service.reviving
    monkeypatch.setattr(reviving, "_message", lambda lane, offset: None)
    with capture_logs() as logs:
        assert reviving.turn()
    assert [(entry["topic"], entry["group"], entry["first"]) for entry in logs] == [
        (TOPIC, GROUP, 0)
    ]
    assert reviving.vanished == 1
    assert world.lanes_in_flight == 0


def test_what_no_file_can_hold_is_tried_again_much_later(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(world)

    def too_large(*_: object) -> None:
        raise RecordTooLargeError("too large")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(world.store.staging, "stage_again", too_large)
        assert world.pop_service.reviving.turn()
    assert any("stored again" in entry["event"] for entry in logs)
    assert world.lanes_in_flight == 1
    assert world.pop_service.lanes.next_due_ms == world.clock.now_ms + 3_600_000
    world.pass_time(3_600_000)
    assert copies(world) == 1


def test_a_group_that_is_gone_settles_its_messages(world: PopWorld) -> None:
    due(world)
    del world.groups.groups[GROUP]
    world.pop_service.reviving.turn()
    assert copies(world) == 0


def test_a_journal_that_cannot_be_written_is_named(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(world)

    def refuse(*_: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(world.pop_service.lanes, "copied", refuse)
    with capture_logs() as logs:
        assert world.pop_service.reviving.turn()
    assert any("may be delivered twice" in entry["event"] for entry in logs)
    assert copies(world) == 1


def priority_topic(world: PopWorld, queues: int) -> None:
    world.topics.configs[TOPIC] = TopicConfig(
        TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        attributes={"message.type": "PRIORITY"},
    )


def test_a_copy_stays_in_its_queue_where_retry_queues_are_separate(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "store", useSeparateRetryQueue="true")
    priority_topic(world, 3)
    for queue_id in range(3):
        world.store.put(MessageToStore(TOPIC, queue_id, b"%d" % queue_id, ""))
    for _ in range(3):
        assert [popped.body for popped in world.pop()] == [b"2", b"1", b"0"]
        world.pass_time(1000)
    assert world.topics.configs[RETRY].write_queue_nums == 3
    # A topic that grows has its retry topic grow.
    priority_topic(world, 5)
    world.store.put(MessageToStore(TOPIC, 4, b"4", ""))
    world.pass_time(0)
    assert [popped.body for popped in world.pop()] == [b"4", b"2", b"1", b"0"]
    world.pass_time(1000)
    assert [popped.body for popped in world.pop()] == [b"4", b"2", b"1", b"0"]
    assert world.topics.configs[RETRY].read_queue_nums == 5
    world.abandon()


def test_a_retry_topic_is_left_as_it_is_otherwise(world: PopWorld) -> None:
    world.topics.configs[RETRY] = TopicConfig(RETRY, read_queue_nums=3, write_queue_nums=2)
    priority_topic(world, 4)
    due(world)
    world.pop_service.reviving.turn()
    found = world.topics.configs[RETRY]
    assert (found.read_queue_nums, found.write_queue_nums) == (3, 2)
    assert copies(world) == 1


def test_a_copy_has_no_property_that_only_the_broker_writes(world: PopWorld) -> None:
    """Some records of earlier releases have properties that clients forged."""
    forged = {"RH_SINK": "ab12:7:3", "RH_FINAL": "0", "__CRC32#": "1", "TIMER_ORIGIN": "0:0"}
    world.send(b"a", encode_properties(forged | {"KEYS": "k"}))
    assert len(world.pop()) == 1
    world.pass_time(1000)
    (again,) = world.pop()
    assert again.message.properties["KEYS"] == "k"
    assert forged.keys().isdisjoint(again.message.properties)


def test_a_message_with_a_separator_in_a_value_is_redelivered(world: PopWorld) -> None:
    world.send(b"odd", "my\x01a\x01b\x02")
    world.send(b"usual")
    assert len(world.pop()) == 2
    world.pass_time(1000)
    again = world.pop()
    assert [each.body for each in again] == [b"odd", b"usual"]
    assert again[0].message.properties["my"] == "a\x01b"


# Room for all properties that a broker adds, for some, for a receipt only, and for none.
@pytest.mark.parametrize(
    ("room_bytes", "is_dead"),
    [(300, False), (250, False), (220, False), (180, False), (100, True), (20, True), (0, True)],
)
def test_long_properties_are_redelivered_or_kept_as_a_dead_letter(
    world: PopWorld, room_bytes: int, is_dead: bool
) -> None:
    value = "x" * (PROPERTIES_SIZE_BYTES_MAX - room_bytes - len("my\x01\x02"))
    world.send(b"long", f"my\x01{value}\x02")
    world.send(b"short")
    for _ in range(2):
        assert [each.body for each in world.pop()][-1] == b"short"
        world.pass_time(1000)
    again = {each.body: each.message for each in world.pop()}
    dead = {each.body: each for each in world.dead()}
    assert set(dead) == ({b"long"} if is_dead else set())
    assert set(again) == {b"long", b"short"} - set(dead)
    found = (dead if is_dead else again)[b"long"]
    assert found.properties["my"] == value
    assert found.properties.get("RETRY_TOPIC") == (TOPIC if is_dead and room_bytes >= 20 else None)


def test_a_message_that_becomes_a_dead_letter_too_early_is_named_once(world: PopWorld) -> None:
    world.send(b"long", "my\x01" + "x" * (PROPERTIES_SIZE_BYTES_MAX - 4) + "\x02")
    assert len(world.pop()) == 1
    with capture_logs() as logs:
        world.pass_time(1000)
        world.pass_time(3_600_000)
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert [(entry["topic"], entry["queue_offset"]) for entry in errors] == [(TOPIC, 0)]
    world.flush()
    assert world.lanes_in_flight == 0


def test_a_stored_copy_without_room_for_its_receipt_becomes_a_dead_letter(world: PopWorld) -> None:
    """Apache's broker may have stored it."""
    due(world)
    assert world.pop_service.reviving.turn()
    long = "my\x01" + "x" * (PROPERTIES_SIZE_BYTES_MAX - 4) + "\x02"
    for body, properties in ((b"long", long), (b"short", "")):
        world.store.put(MessageToStore(RETRY, 0, body, properties))
    assert [each.body for each in world.pop()] == [b"0", b"short"]
    world.pass_time(1000)
    assert [each.body for each in world.pop()] == [b"0", b"short"]
    assert [each.body for each in world.dead()] == [b"long"]
