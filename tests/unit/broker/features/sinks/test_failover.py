"""A batch that a master was publishing when it was lost is finished by the next one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.features.sinks.publisher import SinkPublisher
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkPart, encode_sink_body
from tests.support.features import sinks_of
from tests.support.state_rig import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


def test_a_batch_of_a_sink_that_was_cut_off_is_finished_by_the_next_master(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = pair.master
    master.create_topic("orders")
    bodies = [b"%d" % number for number in range(1000)]
    ends: list[int] = []
    real_commit = MessageStore.commit

    def commit(store: MessageStore) -> int:
        end = real_commit(store)
        if store.staging.tail("orders", 0).next_offset:
            ends.append(end)
        return end

    async def publish() -> None:
        stage(sinks_of(master), "orders", bodies)
        parts = [SinkPart("p", len(bodies))]
        await master.flushing(sinks_of(master).publish("sink", 1, parts))

    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "commit", commit)
        master.run(publish())
    pair.follower.take(master, ends[0])
    assert 0 < pair.follower.store.reading.queue_range("orders", 0)[1] < len(bodies)
    leader = pair.fail_over()
    assert sinks_of(leader).last_batch_id("sink") == 1
    assert leader.store.reading.queue_range("orders", 0) == (0, len(bodies))


def stage(sinks: SinkPublisher, topic: str, bodies: list[bytes]) -> None:
    messages = [SinkMessage(topic, 0, 0, 0, "", body) for body in bodies]
    sinks.stage("sink", 1, "p", 0, encode_sink_body(messages), len(bodies), [topic])
