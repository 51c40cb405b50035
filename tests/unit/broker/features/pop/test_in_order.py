"""Orderly pops: one batch at a time, acknowledged in any order, buried after too many times."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.broker.users.errors import IllegalMessage
from rockhopper.protocol.subscription import Subscription
from tests.support.pop_world import GROUP, TOPIC, PopWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PopWorld]:
    made = PopWorld(tmp_path / "store", retry_max_times=1)
    for number in range(4):
        made.send(b"%d" % number, f"TAGS\x01{'ab'[number % 2]}\x02")
    yield made
    made.abandon()


def bodies(world: PopWorld, count: int = 2, **changes: object) -> list[bytes]:
    return [popped.body for popped in world.pop(count, order=True, **changes)]  # type: ignore[arg-type]


def test_a_queue_is_blocked_until_its_batch_is_settled(world: PopWorld) -> None:
    first, second = world.pop(2, order=True)
    assert bodies(world) == []
    world.ack(second)
    assert bodies(world) == []
    world.ack(first)
    assert bodies(world) == [b"2", b"3"]
    assert world.offsets.get(TOPIC, GROUP, 0) == 2


def test_a_batch_ends_when_a_pull_consumer_commits_behind_it(world: PopWorld) -> None:
    assert bodies(world) == [b"0", b"1"]
    world.offsets.commit(TOPIC, GROUP, 0, 3)
    assert bodies(world) == [b"3"]


def test_the_same_attempt_gets_the_same_messages_again(world: PopWorld) -> None:
    assert bodies(world, attempt_id="a") == [b"0", b"1"]
    assert bodies(world, attempt_id="b") == []
    assert bodies(world, attempt_id="a") == [b"0", b"1"]


def test_what_was_acknowledged_behind_an_open_message_comes_again(world: PopWorld) -> None:
    _, second = world.pop(2, order=True)
    world.ack(second)
    world.pass_time(1000)
    assert bodies(world, count=4) == [b"0", b"1", b"2", b"3"]


def test_what_was_handed_out_too_often_is_buried_and_the_queue_goes_on(world: PopWorld) -> None:
    for _ in range(2):
        assert bodies(world, count=1) == [b"0"]
        world.pass_time(1000)
    assert bodies(world, count=1) == [b"1"]
    (dead,) = world.dead()
    assert (dead.body, dead.reconsume_times, dead.store_time_ms) == (b"0", 2, world.clock())
    assert dead.properties["RETRY_TOPIC"] == TOPIC


def test_a_buried_message_holds_the_offset_until_its_dead_letter_is_on_disk(
    world: PopWorld,
) -> None:
    for _ in range(2):
        assert bodies(world, count=1) == [b"0"]
        world.pass_time(1000)
    (popped,) = world.pop(1, order=True)
    world.ack(popped)
    assert world.offsets.get(TOPIC, GROUP, 0) == 0
    world.flush()
    assert world.offsets.get(TOPIC, GROUP, 0) == 2
    world.pass_time(1000)
    assert bodies(world) == [b"2", b"3"]


def test_a_message_is_kept_while_the_store_refuses_its_dead_letter(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert bodies(world, count=1) == [b"0"]
        world.pass_time(1000)

    def refuse() -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "check_writable", refuse)
        with pytest.raises(DiskFullError):
            world.pop(1, order=True)
        assert world.dead() == []
    assert bodies(world, count=1) == [b"1"]
    assert [message.body for message in world.dead()] == [b"0"]


def test_a_message_too_large_for_the_dead_letters_is_handed_out_again(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.pop_service.reviving, "bury", lambda lane, message: False)
    for _ in range(4):
        assert bodies(world, count=1) == [b"0"]
        world.pass_time(1000)


def test_only_the_messages_that_were_tried_too_often_are_buried(world: PopWorld) -> None:
    assert bodies(world, count=1) == [b"0"]
    world.pass_time(1000)
    assert bodies(world, count=2) == [b"0", b"1"]
    world.pass_time(1000)
    assert bodies(world, count=2) == [b"1", b"2"]
    assert [message.body for message in world.dead()] == [b"0"]


def test_a_group_without_a_limit_gets_a_message_for_ever(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "other", retry_max_times=-1)
    world.send(b"0")
    for _ in range(30):
        assert bodies(world) == [b"0"]
        world.pass_time(1000)
    world.abandon()


def test_filtered_messages_are_stepped_over(world: PopWorld) -> None:
    only_b = Subscription(TOPIC, "b")
    popped = world.pop(4, order=True, subscription=only_b)
    assert [each.body for each in popped] == [b"1", b"3"]
    for each in popped:
        world.ack(each)
    assert bodies(world) == []
    assert world.offsets.get(TOPIC, GROUP, 0) == 4


def test_an_offset_that_is_not_in_the_batch_is_refused(world: PopWorld) -> None:
    first, _ = world.pop(2, order=True)
    first.offset = 3
    with pytest.raises(IllegalMessage, match="offset is illegal"):
        world.ack(first)


@pytest.mark.parametrize("late", ["after it became visible", "twice"])
def test_an_acknowledgement_that_comes_too_late_changes_nothing(world: PopWorld, late: str) -> None:
    first, second = world.pop(2, order=True)
    if late == "twice":
        world.ack(first)
        world.ack(first)
        assert bodies(world) == []
        world.ack(second)
        assert bodies(world) == [b"2", b"3"]
        return
    world.pass_time(1000)
    again, _ = world.pop(2, order=True)
    world.ack(first)
    world.ack(second)
    assert bodies(world) == []
    world.ack(again)
    assert bodies(world) == []


def test_a_message_may_come_back_at_another_time(world: PopWorld) -> None:
    first, second = world.pop(2, order=True)
    pop_ms = first.info.pop_ms
    assert world.change(first, 5000)
    assert first.info.pop_ms == pop_ms
    assert first.info.invisible_ms == 5000
    world.pass_time(4999)
    assert bodies(world) == []
    world.pass_time(1)
    assert bodies(world) == [b"0", b"1"]
    assert not world.change(second, 10)


def test_what_is_acknowledged_cannot_be_put_off(world: PopWorld) -> None:
    first, _ = world.pop(2, order=True)
    world.ack(first)
    assert not world.change(first, 5000)


def test_a_batch_is_known_again_after_a_kill(world: PopWorld) -> None:
    first, second = world.pop(2, order=True)
    world.kill()
    assert bodies(world) == []
    world.ack(first)
    world.ack(second)
    assert bodies(world) == [b"2", b"3"]


def test_a_cursor_is_written_when_it_moves(world: PopWorld) -> None:
    for popped in world.pop(2, order=True):
        world.ack(popped)
    journal = world.pop_service.journal
    sizes_bytes = [journal.size_bytes]
    for _ in range(2):
        assert bodies(world, subscription=Subscription(TOPIC, "nobody")) == []
        sizes_bytes.append(journal.size_bytes)
    assert sizes_bytes[0] < sizes_bytes[1] == sizes_bytes[2]


@pytest.mark.parametrize("order_of_events", ["change, ack", "ack, change"])
def test_a_queue_is_free_as_soon_as_a_shortened_time_is_over(
    world: PopWorld, order_of_events: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[int] = []
    monkeypatch.setattr(
        world.pop_service.reviving, "ring", lambda lane: freed.append(world.now_ms())
    )
    first, second = world.pop(2, invisible_ms=60_000, order=True)
    start_ms = world.now_ms()
    for event in order_of_events.split(", "):
        if event == "ack":
            world.ack(second)
        else:
            assert world.change(first, 100)
    world.pass_time(99)
    assert freed == []
    world.pass_time(1)
    assert freed == [start_ms + 100]
