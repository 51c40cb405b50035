"""Pops of topics with very many queues: what they do in one step."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.features.pop.extra_info import parse_extra_info, real_topic
from rockhopper.broker.features.pop.reading import PopRequest
from rockhopper.broker.features.pop.sources import QUEUES_PER_SLICE, PopSources
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.server.loop.cooperative_work import CooperativeWork, run_at_once
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.put import MessageToStore
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.pop_world import GROUP, RETRY, TOPIC, PopWorld

QUEUES = 4 * QUEUES_PER_SLICE
WANTED = PopRequest(GROUP, TOPIC, -1, 32, 1000, False)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PopWorld]:
    world = PopWorld(tmp_path / "store")
    world.topics.configs[TOPIC] = TopicConfig(
        TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES
    )
    yield world
    world.abandon()


def send(world: PopWorld, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        world.store.put(MessageToStore(TOPIC, queue_id, b"%d" % queue_id, ""))


def bodies(body: bytes) -> list[bytes]:
    return sorted(message.body for message in decode_messages(body))


def test_a_step_of_a_pop_looks_at_so_many_queues(world: PopWorld) -> None:
    work = CooperativeWork(world.pop_service.pop_steps(WANTED))
    lanes = [0]
    while not work.step():
        lanes.append(len(world.pop_service.lanes))
        assert lanes[-1] - lanes[-2] == QUEUES_PER_SLICE
    assert len(world.pop_service.lanes) == QUEUES


def test_pops_take_from_queues_that_are_far_apart(world: PopWorld) -> None:
    send(world, 200, 500, 1000)
    found = [bodies(run_at_once(world.pop_service.pop_steps(WANTED)).body()) for _ in range(3)]
    assert sorted(found) == [[b"1000"], [b"200"], [b"500"]]


def test_a_pop_looks_no_further_than_to_the_end_of_the_step_that_finds_something(
    world: PopWorld,
) -> None:
    send(world, 0, 500, 1000)
    answer = run_at_once(world.pop_service.pop_steps(WANTED, (TOPIC, 500)))
    assert bodies(answer.body()) == [b"500"]
    assert len(world.pop_service.lanes) == QUEUES_PER_SLICE


def test_peeking_and_looking_go_in_steps_too(world: PopWorld) -> None:
    send(world, 101)
    steps = QUEUES // QUEUES_PER_SLICE
    # The first queue that is looked at is number 102.
    assert sum(1 for _ in world.pop_service.look_steps(WANTED)) == steps - 1
    assert sum(1 for _ in world.pop_service.peek_steps(WANTED)) == steps - 1
    assert run_at_once(world.pop_service.look_steps(WANTED))
    assert bodies(run_at_once(world.pop_service.peek_steps(WANTED)).body()) == [b"101"]


def test_a_topic_that_is_deleted_in_between_gets_no_lanes(world: PopWorld) -> None:
    work = CooperativeWork(world.pop_service.pop_steps(WANTED))
    assert not work.step()
    world.topics.delete(TOPIC)
    with pytest.raises(Refusal, match="not exist"):
        work.step()
    assert len(world.pop_service.lanes) == 0


@pytest.mark.parametrize(
    ("chance", "percent", "is_first"),
    [(0.199, 20, True), (0.2, 20, False), (0.0, 0, False), (0.999, 100, True)],
)
def test_so_many_of_a_hundred_pops_look_at_the_retry_topic_first(
    tmp_path: Path, chance: float, percent: int, is_first: bool
) -> None:
    world = PopWorld(tmp_path / "store")
    for name in (TOPIC, RETRY):
        world.topics.configs[name] = TopicConfig(name, read_queue_nums=1, write_queue_nums=1)
    config = build_config({"popFromRetryProbability": str(percent)})
    sources = PopSources(config, world.topics, world.groups, lambda: chance)
    assert [retry for _, _, retry in sources.list_sources(WANTED)] == [is_first, not is_first]
    world.abandon()


def test_messages_that_rocketmq_left_in_its_older_retry_topic_are_popped(tmp_path: Path) -> None:
    world = PopWorld(tmp_path / "store")
    older = f"%RETRY%{GROUP}_{TOPIC}"
    assert world.pop_service.sources.list_waited_queues(WANTED) == [(TOPIC, -1), (RETRY, -1)]
    world.topics.configs[older] = TopicConfig(older, read_queue_nums=1, write_queue_nums=1)
    assert world.pop_service.sources.list_waited_queues(WANTED)[2:] == [(older, -1)]
    world.store.put(MessageToStore(older, 0, b"failed", "RETRY_TOPIC\x01" + TOPIC + "\x02"))
    # The second copy is Rockhopper's own.
    for flag, topic in (("1", older), ("2", RETRY)):
        (popped,) = world.pop()
        point = popped.message.properties["POP_CK"]
        info = parse_extra_info(point)
        assert (popped.body, info.retry_flag, popped.message.topic) == (b"failed", flag, TOPIC)
        assert real_topic(GROUP, TOPIC, info.retry_flag) == topic
        world.pass_time(1000)
    (popped,) = world.pop()
    offset = int(popped.message.properties["POP_CK"].split(" ")[7])
    world.pop_service.ack(GROUP, RETRY, 0, [offset], popped.info)
    world.flush()
    assert world.lanes_in_flight == 0
    world.abandon()
