"""Pop consumption with a clock that stands still: visibility, redelivery, crashes, resets."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.features.pop.compaction import Compaction
from rockhopper.broker.features.pop.reading import PopAnswer, PopRequest
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.server.loop.cooperative_work import run_at_once
from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.put import MessageToStore
from rockhopper.broker.store.reading.get_result import GetResult
from rockhopper.broker.users.errors import TopicNotFound
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.open_stores import flush
from tests.support.peers import Peer
from tests.support.pop_world import DEAD, GROUP, RETRY, TOPIC, PopWorld
from tests.support.turns import until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PopWorld]:
    world = PopWorld(tmp_path / "store")
    yield world
    world.abandon()


def bodies(world: PopWorld, invisible_ms: int = 1000) -> list[bytes]:
    return [popped.body for popped in world.pop(invisible_ms=invisible_ms)]


def test_message_is_invisible_for_exactly_its_time(world: PopWorld) -> None:
    world.send(b"a")
    assert bodies(world, invisible_ms=1000) == [b"a"]
    world.pass_time(999)
    assert bodies(world) == []
    world.pass_time(1)
    (again,) = world.pop()
    assert (again.body, again.message.reconsume_times, again.message.topic) == (b"a", 1, TOPIC)


def test_acknowledged_in_time_is_never_seen_again(world: PopWorld) -> None:
    world.send(b"a")
    (popped,) = world.pop()
    world.pass_time(999)
    world.ack(popped)
    world.pass_time(100_000)
    assert bodies(world) == []
    assert world.offsets.get(TOPIC, GROUP, 0) == 1


def test_a_suspended_message_counts_no_attempt_and_is_never_dead(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "store", retry_max_times=1)
    world.send(b"a")
    seen = []
    for suspend in (True, True, False, True, True, False):
        (popped,) = world.pop(invisible_ms=100)
        seen.append(popped.message.reconsume_times)
        assert world.change(popped, 50, suspend=suspend)
        world.pass_time(50)
    assert seen == [0, 0, 0, 1, 1, 1]
    assert [letter.body for letter in world.dead()] == [b"a"]
    world.abandon()


def test_a_later_change_without_suspend_counts_an_attempt(world: PopWorld) -> None:
    world.send(b"a")
    (popped,) = world.pop()
    assert world.change(popped, 50, suspend=True)
    assert world.change(popped, 50)
    world.pass_time(50)
    assert [again.message.reconsume_times for again in world.pop()] == [1]


@pytest.mark.parametrize("set_ms", [-3_600_000, -30_000])
def test_a_clock_that_is_set_back_keeps_nothing_invisible_for_longer(
    tmp_path: Path, set_ms: int
) -> None:
    world = PopWorld(tmp_path / "store", steady=True)
    world.send(b"a")
    assert bodies(world) == [b"a"]
    world.pass_time(500)
    world.clock.set_by(set_ms)
    world.pass_time(499)
    assert bodies(world) == []
    world.pass_time(1)
    assert bodies(world) == [b"a"]
    world.abandon()


def test_a_clock_that_is_set_forward_lets_messages_come_back(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "store", steady=True)
    world.send(b"a")
    assert bodies(world, invisible_ms=3_600_000) == [b"a"]
    world.clock.set_by(3_600_000)
    world.pass_time(0)
    assert bodies(world) == [b"a"]
    world.abandon()


def test_late_acknowledgement_does_not_lose_the_copy(world: PopWorld) -> None:
    world.send(b"a")
    (popped,) = world.pop()
    world.pass_time(1000)
    world.ack(popped)
    assert bodies(world) == [b"a"]


def test_acknowledgement_that_beats_the_revival_counts(world: PopWorld) -> None:
    world.send(b"a")
    (popped,) = world.pop()
    world.clock.advance(5000)
    world.ack(popped)
    world.pass_time(0)
    assert bodies(world) == []


def test_invisible_time_0_means_at_once(world: PopWorld) -> None:
    world.send(b"a")
    (popped,) = world.pop(invisible_ms=60_000)
    assert world.change(popped, 0)
    world.pass_time(1)
    assert bodies(world) == [b"a"]


def test_extended_message_stays_invisible(world: PopWorld) -> None:
    world.send(b"a")
    (popped,) = world.pop()
    world.pass_time(900)
    assert world.change(popped, 2000)
    world.pass_time(1999)
    assert bodies(world) == []
    world.ack(popped)
    world.pass_time(10_000)
    assert bodies(world) == []


def test_dead_letters_after_the_maximum(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "store", retry_max_times=3)
    world.send(b"poison", "TAGS\x01red\x02")
    times = []
    while popped := world.pop():
        times.append(popped[0].message.reconsume_times)
        world.pass_time(1000)
    assert times == [0, 1, 2, 3]
    (dead,) = world.dead()
    assert dead.properties["RETRY_TOPIC"] == TOPIC
    assert dead.reconsume_times == 4
    assert dead.tags == "red"
    assert dead.properties["ORIGIN_MESSAGE_ID"]
    world.flush()
    assert world.lanes_in_flight == 0
    assert (world.offsets.get(TOPIC, GROUP, 0), world.offsets.get(RETRY, GROUP, 0)) == (1, 3)
    world.abandon()


def test_committed_offset_waits_for_the_copy_to_be_on_disk(world: PopWorld) -> None:
    world.send(b"a")
    world.pop()
    world.pass_time(1000)
    assert world.offsets.get(TOPIC, GROUP, 0) == 0
    world.flush()
    assert world.offsets.get(TOPIC, GROUP, 0) == 1


def test_what_is_in_flight_survives_a_kill_and_what_is_settled_stays_so(world: PopWorld) -> None:
    for body in (b"a", b"b", b"c", b"d"):
        world.send(body)
    a, b, _c = world.pop(3)
    world.ack(b)
    world.kill()
    assert bodies(world) == [b"d"]
    world.ack(a)
    world.pass_time(1000)
    assert sorted(bodies(world)) == [b"c", b"d"]


def test_kill_between_the_copy_and_its_note_repeats_the_message(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(b"a")
    world.pop()

    def refuse(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(world.pop_service.journal, "append", refuse)
        world.pass_time(1000)
    world.kill()
    world.pass_time(0)
    assert bodies(world) == [b"a", b"a"]


def test_lost_journal_repeats_what_was_not_settled(world: PopWorld) -> None:
    for body in (b"a", b"b", b"c"):
        world.send(body)
    a, *_ = world.pop()
    world.ack(a)
    world.kill(lose_journal=True)
    assert bodies(world) == [b"b", b"c"]


def test_store_that_refuses_keeps_messages_in_flight(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"a", b"b"):
        world.send(body)
    world.pop()
    world.clock.advance(1000)
    with monkeypatch.context() as patch:

        def refuse() -> None:
            raise DiskFullError("no room")

        patch.setattr(world.store, "check_writable", refuse)
        assert not world.pop_service.reviving.turn()
        assert world.lanes_in_flight == 2
    assert world.pop_service.reviving.turn()
    assert sorted(bodies(world)) == [b"a", b"b"]


def test_write_that_fails_keeps_messages_in_flight(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(b"a")
    world.pop()
    world.clock.advance(1000)
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise DiskFullError("no room")

        patch.setattr(CommitLog, "_pwrite", refuse)
        assert not world.pop_service.reviving.turn()
        assert world.pop_service.reviving.revived == 0
        assert world.lanes_in_flight == 1
    assert world.pop_service.reviving.turn()
    assert bodies(world) == [b"a"]


def test_turn_is_bounded(world: PopWorld) -> None:
    for number in range(200):
        world.send(b"%d" % number)
    while world.pop(16):
        pass
    world.clock.advance(1000)
    assert world.pop_service.reviving.turn()
    assert 64 <= world.pop_service.reviving.revived < 64 + 32
    world.pass_time(0)
    assert world.pop_service.reviving.revived == 200


def test_reset_forgets_what_is_in_flight(world: PopWorld) -> None:
    for body in (b"a", b"b", b"c"):
        world.send(body)
    world.pop(2)
    world.offsets.reset(TOPIC, GROUP, 0, 2)
    world.pass_time(1000)
    assert bodies(world) == [b"c"]
    world.pass_time(1000)
    assert bodies(world) == [b"c"]
    world.offsets.reset(TOPIC, GROUP, 0, 0)
    assert bodies(world)[:3] == [b"a", b"b", b"c"]


def test_group_or_topic_that_is_gone_takes_its_messages_along(world: PopWorld) -> None:
    world.send(b"a")
    world.pop()
    world.groups.groups.pop(GROUP)
    world.pass_time(1000)
    assert world.lanes_in_flight == 0
    assert len(world.pop_service.lanes) == 0


def test_lanes_of_a_group_or_topic_that_was_deleted_are_forgotten(world: PopWorld) -> None:
    for group, topic in ((GROUP, TOPIC), ("gone", TOPIC), (GROUP, "gone")):
        world.pop_service.lanes.open(group, topic, 0, 0)
    world.pop_service.expire()
    assert [(lane.group, lane.topic) for lane in world.pop_service.lanes] == [(GROUP, TOPIC)]


@pytest.mark.parametrize(
    ("event", "arguments", "left"),
    [
        ("group_deleted", (GROUP,), [("others", TOPIC)]),
        ("topic_purged", (TOPIC,), [(GROUP, "bills")]),
        ("topic_changed", (TOPIC, None), [(GROUP, "bills")]),
        ("topic_changed", (TOPIC, TopicConfig(TOPIC)), None),
        ("purge", (), []),
    ],
)
def test_lanes_go_with_their_group_or_topic(
    world: PopWorld, event: str, arguments: tuple[object, ...], left: list[tuple[str, str]] | None
) -> None:
    lanes = [(GROUP, TOPIC), ("others", TOPIC), (GROUP, "bills")]
    for group, topic in lanes:
        world.pop_service.lanes.open(group, topic, 0, 0)
    getattr(world.pop_service, event)(*arguments)
    found = [(lane.group, lane.topic) for lane in world.pop_service.lanes]
    assert found == (lanes if left is None else left)


async def test_a_start_forgets_what_is_gone_and_revives_what_is_due(world: PopWorld) -> None:
    world.send(b"a")
    world.pop()
    world.clock.advance(1000)
    lanes = world.pop_service.lanes
    lanes.open("gone", TOPIC, 0, 0)
    lost = lanes.open(GROUP, RETRY, 0, 9)  # a power cut took the messages
    world.topics.configs[RETRY] = TopicConfig(RETRY)
    world.pop_service.start()
    assert lanes.get("gone", TOPIC, 0) is None
    assert lost.cursor == 0
    await until(lambda: world.pop_service.reviving.revived == 1)
    world.pop_service.stop()
    assert bodies(world) == [b"a"]


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        ("its topic is deleted", TopicNotFound),
        ("its group is reset to a message", 1),
        ("the broker stops", 0),
    ],
)
async def test_a_waiting_pop_is_answered_at_once(
    world: PopWorld, event: str, outcome: object
) -> None:
    outcomes: list[object] = []
    world.send(b"a")
    (popped,) = world.pop()
    world.ack(popped)

    def tell(answer: PopAnswer) -> None:
        outcomes.append(answer.count)

    def fail(error: Exception) -> None:
        outcomes.append(type(error))

    def check() -> None:
        if TOPIC not in world.topics:
            raise TopicNotFound("gone")

    service, wanted = world.pop_service, PopRequest(GROUP, TOPIC, -1, 32, 1000, False)
    assert service.wait(Peer().connection, wanted, 30.0, tell, fail, check)
    if event == "its topic is deleted":
        del world.topics.configs[TOPIC]
        service.topic_changed(TOPIC, None)
    elif event == "the broker stops":
        service.stop()
    else:
        world.offsets.reset(TOPIC, GROUP, 0, 0)
        service.group_reset(GROUP, TOPIC)
    for _ in range(2):
        await asyncio.sleep(0)
    assert outcomes == [outcome]


def test_no_more_messages_are_in_flight_than_the_setting_allows(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "store", popInflightMessageThreshold="2")
    for body in (b"a", b"b", b"c"):
        world.send(body)
    first, second = world.pop()
    assert (first.body, second.body, bodies(world)) == (b"a", b"b", [])
    world.ack(second)
    assert bodies(world) == [b"c"]
    world.abandon()


def test_redelivered_messages_come_though_the_group_starts_at_the_newest(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "store", initialOffset="strict")
    world.pop(from_newest=True)
    world.send(b"a")
    for _ in range(2):
        assert [popped.body for popped in world.pop(from_newest=True)] == [b"a"]
        world.pass_time(1000)
    world.abandon()


def test_copies_on_disk_are_settled_without_a_pop(world: PopWorld) -> None:
    world.send(b"a")
    world.pop()
    world.pass_time(1000)
    flush(world.store)
    world.pop_service.expire()
    assert world.offsets.get(TOPIC, GROUP, 0) == 1


def test_new_group_starts_at_the_newest_message_if_the_first_has_expired(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"a", b"b", b"c"):
        world.send(body)
    monkeypatch.setattr(world.store.reading, "has_first_message", lambda topic, queue_id: False)
    assert [popped.body for popped in world.pop(from_newest=True)] == [b"c"]


@pytest.mark.parametrize(("initial", "expected"), [("compat", [b"a", b"b"]), ("strict", [])])
def test_new_group_starts_where_it_asks(
    tmp_path: Path, initial: str, expected: list[bytes]
) -> None:
    world = PopWorld(tmp_path / "store", initialOffset=initial)
    world.send(b"a")
    world.send(b"b")
    assert [popped.body for popped in world.pop(from_newest=True)] == expected
    world.send(b"c")
    assert [popped.body for popped in world.pop(from_newest=True)] == [b"c"]
    world.abandon()


def test_an_ordered_queue_goes_on_at_its_first_message_that_was_not_acknowledged(
    world: PopWorld,
) -> None:
    """As RocketMQ: 1 2 3, and with 2 not acknowledged 2 3 4, so that the order is kept."""
    for body in (b"1", b"2", b"3", b"4"):
        world.send(body)
    batch = world.pop(3, order=True)
    world.ack(batch[0])
    world.ack(batch[2])
    world.kill()
    assert world.pop(order=True) == []
    world.pass_time(1000)
    again = world.pop(3, order=True)
    assert [popped.body for popped in again] == [b"2", b"3", b"4"]
    for popped in again:
        world.ack(popped)
    assert world.offsets.get(TOPIC, GROUP, 0) == 4
    assert world.pop(order=True) == []


def test_an_ordered_pop_of_fewer_messages_leaves_none_out(world: PopWorld) -> None:
    for body in (b"1", b"2", b"3"):
        world.send(body)
    world.ack(world.pop(3, order=True)[2])
    world.pass_time(1000)
    seen = []
    while popped := world.pop(1, order=True):
        seen.append(popped[0].body)
        world.ack(popped[0])
    assert seen == [b"1", b"2", b"3"]


def test_ordered_batch_does_not_block_other_pops_for_ever(world: PopWorld) -> None:
    world.send(b"1")
    world.pop(order=True)
    assert world.pop() == []
    world.pass_time(1000)
    assert bodies(world) == [b"1"]


def test_journal_is_compacted_while_pops_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        world = PopWorld(tmp_path / "store")
        service = world.pop_service
        service.compaction = Compaction(service.journal, service.lanes, size_bytes_min=4000)
        kept = None
        for number in range(900):
            deleting = service.compaction.deleting
            world.send(b"%d" % number)
            (popped,) = world.pop(1, invisible_ms=60_000)
            if number == 17:
                kept = popped
            else:
                world.ack(popped)
            await asyncio.sleep(0)
            if deleting is not None:
                await deleting  # a thread that is not scheduled would let the journal grow
        for _ in range(100):
            if service.compaction.deleting is not None:
                await service.compaction.deleting
            await asyncio.sleep(0)
        assert int(world.journal_files()[-1].name) >= 2
        assert sum(path.stat().st_size for path in world.journal_files()) < 20_000
        await service.compaction.close()
        world.kill()
        assert kept is not None
        assert list(next(iter(world.pop_service.lanes)).entries) == [kept.offset]
        world.abandon()

    asyncio.run(run())


def test_dead_letter_queue_is_made_on_demand(world: PopWorld) -> None:
    assert DEAD not in world.topics
    assert RETRY not in world.topics
    world.send(b"a")
    world.pop()
    world.pass_time(1000)
    assert RETRY in world.topics
    assert DEAD not in world.topics


def test_kill_before_the_table_of_groups_is_on_disk_forgets_nothing(world: PopWorld) -> None:
    world.send(b"a")
    world.send(b"b")
    first, _second = world.pop()
    world.ack(first)
    world.knows_group = False
    world.kill()
    assert bodies(world) == []
    world.pass_time(1000)
    assert bodies(world) == [b"b"]


def test_a_queue_that_has_nothing_for_the_group_is_not_read(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read = world.store.reading.get_message

    def get_message(topic: str, queue_id: int, offset: int, *rest: Any) -> GetResult:
        reads.append(offset)
        return read(topic, queue_id, offset, *rest)

    monkeypatch.setattr(world.store.reading, "get_message", get_message)
    world.send(b"a")
    assert bodies(world) == [b"a"]
    assert bodies(world) == []
    assert reads == [0]


def test_a_retry_topic_that_two_groups_may_mean_hands_out_what_failed_there(
    tmp_path: Path,
) -> None:
    world = PopWorld(tmp_path)
    older = f"%RETRY%{GROUP}_{TOPIC}"
    world.topics.configs[older] = TopicConfig(older, read_queue_nums=1, write_queue_nums=1)
    world.store.put(MessageToStore("others", 0, b"popped", ""))
    world.send(b"mine")

    def copied_from(topic: str) -> str:
        (sent,) = decode_messages(world.store.reading.get_message(topic, 0, 0, 1).body)
        return f"1ST_POP_TIME\x015\x02ORIGIN_MESSAGE_ID\x01{sent.offset_message_id}\x02"

    # Of a pulling group with this name, of another group and topic, and of this.
    world.store.put(MessageToStore(older, 0, b"pulled", "RETRY_TOPIC\x01others\x02"))
    world.groups.find_or_create(f"{GROUP}_{TOPIC}")
    pulled = f"1ST_POP_TIME\x015\x02RETRY_TOPIC\x01{TOPIC}\x02"
    world.store.put(MessageToStore(older, 0, b"pulled", pulled))
    world.store.put(MessageToStore(older, 0, b"popped", copied_from("others")))
    world.store.put(MessageToStore(older, 0, b"failed", copied_from(TOPIC)))
    peeked = run_at_once(world.pop_service.peek_steps(PopRequest(GROUP, TOPIC, -1, 32, 0, False)))
    assert sorted(each.body for each in decode_messages(peeked.body())) == [b"failed", b"mine"]
    assert sorted(each.body for each in world.pop()) == [b"failed", b"mine"]
    world.abandon()


@pytest.mark.parametrize("order", [False, True])
def test_what_a_group_failed_while_it_pulled_comes_when_it_pops(
    tmp_path: Path, order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PopWorld(tmp_path)
    pulled = f"%RETRY%{GROUP}"
    world.topics.configs[pulled] = TopicConfig(pulled, read_queue_nums=1, write_queue_nums=1)
    failed = MessageToStore(pulled, 0, b"failed", f"RETRY_TOPIC\x01{TOPIC}\x02", reconsume_times=3)
    unnamed = failed._replace(properties="")
    for message in (failed, failed._replace(properties="RETRY_TOPIC\x01others\x02"), unnamed):
        world.store.put(message)
    monkeypatch.setattr(world.pop_service, "is_pulled", lambda group: True)
    assert world.pop(order=order) == []
    monkeypatch.setattr(world.pop_service, "is_pulled", lambda group: False)
    found = world.pop(order=order)
    assert [(each.body, each.message.reconsume_times) for each in found] == [(b"failed", 3)] * 2
    world.flush()
    world.pop_service.reviving.settle()
    assert world.offsets.get(pulled, GROUP, 0) == 3
    assert world.store.reading.queue_range(f"%RETRY%{GROUP}+others", 0) == (0, 1)
    world.abandon()


def test_a_group_that_became_orderly_gets_what_it_popped_and_failed(tmp_path: Path) -> None:
    world = PopWorld(tmp_path)
    world.send(b"failed")
    world.pop()
    world.pass_time(1000)
    (again,) = world.pop(order=True)
    assert (again.body, again.topic) == (b"failed", RETRY)
    world.abandon()


def test_what_a_group_popped_and_failed_comes_when_it_pulls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PopWorld(tmp_path)
    world.send(b"failed")
    world.pop()
    world.pass_time(1000)
    assert world.store.reading.queue_range(RETRY, 0) == (0, 1)
    world.pop_service.retries_read(GROUP)
    assert world.store.reading.queue_range(f"%RETRY%{GROUP}", 0) == (0, 0)
    monkeypatch.setattr(world.pop_service, "is_pulled", lambda group: True)
    world.pop_service.retries_read(GROUP)
    result = world.store.reading.get_message(f"%RETRY%{GROUP}", 0, 0, 32)
    (message,) = decode_messages(result.body)
    assert (message.body, message.reconsume_times) == (b"failed", 1)
    assert message.properties["RETRY_TOPIC"] == TOPIC
    world.abandon()


def test_what_waits_for_a_pulling_group_is_of_the_topic_that_was_sent(tmp_path: Path) -> None:
    world = PopWorld(tmp_path)
    pulled = f"%RETRY%{GROUP}"
    world.topics.configs[pulled] = TopicConfig(pulled, read_queue_nums=1, write_queue_nums=1)
    world.store.put(MessageToStore("others", 0, b"failed", ""))
    (sent,) = decode_messages(world.store.reading.get_message("others", 0, 0, 1).body)
    properties = f"ORIGIN_MESSAGE_ID\x01{sent.offset_message_id}\x02"
    world.store.put(MessageToStore(pulled, 0, b"failed", properties))
    assert world.pop() == []
    assert world.store.reading.queue_range(f"%RETRY%{GROUP}+others", 0) == (0, 1)
    assert world.dead() == []
    world.abandon()


def test_a_pulling_group_gets_its_own_of_an_older_retry_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PopWorld(tmp_path)
    world.send(b"sent")
    older = f"%RETRY%{GROUP}_{TOPIC}"
    world.topics.put(TopicConfig(older, read_queue_nums=1, write_queue_nums=1))
    (sent,) = decode_messages(world.store.reading.get_message(TOPIC, 0, 0, 1).body)
    failed = f"1ST_POP_TIME\x015\x02ORIGIN_MESSAGE_ID\x01{sent.offset_message_id}\x02"
    world.groups.find_or_create(f"{GROUP}_{TOPIC}")
    for body, properties in ((b"failed", failed), (b"others", f"RETRY_TOPIC\x01{TOPIC}\x02")):
        world.store.put(MessageToStore(older, 0, body, properties))
    monkeypatch.setattr(world.pop_service, "is_pulled", lambda group: True)
    world.pop_service.retries_read(GROUP)
    result = world.store.reading.get_message(f"%RETRY%{GROUP}", 0, 0, 32)
    (message,) = decode_messages(result.body)
    assert (message.body, message.properties["RETRY_TOPIC"]) == (b"failed", TOPIC)
    world.abandon()


def test_the_time_of_the_newest_pop_is_known(world: PopWorld) -> None:
    """A broker whose clock was set back goes on from there."""
    world.send(b"a")
    world.clock.advance(3_600_000)
    world.pop()
    assert world.pop_service.lanes.newest_ms == world.clock.now_ms


async def test_a_clean_stop_waits_for_the_copies_of_redelivered_messages(
    world: PopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(b"a")
    world.pop()
    world.pass_time(1000)
    waited: list[int] = []

    async def wait_for_disk(end_offset: int) -> None:
        waited.append(end_offset)
        flush(world.store)

    monkeypatch.setattr(world.store.safe_point, "wait_for_disk", wait_for_disk)
    await world.pop_service.close()
    assert waited == [world.store.log.written_offset]
    assert world.offsets.get(TOPIC, GROUP, 0) == 1
