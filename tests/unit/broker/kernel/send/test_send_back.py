"""A message that a consumer failed on, whoever hands it back."""

import pytest

from rockhopper.broker.users.errors import GroupNotFound, Refusal
from tests.support.served_broker import ServedBroker


async def test_a_negative_level_buries_and_says_how_far_the_log_must_be_safe(
    broker: ServedBroker,
) -> None:
    broker.create_topic("t")
    put = broker.put("t")
    end_offset = broker.kernel.send_back.store_again("g", put.commit_log_offset, -1)
    assert end_offset == broker.store.log.written_offset
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_a_maximum_of_the_asker_counts_unless_it_is_negative(broker: ServedBroker) -> None:
    broker.create_topic("t")
    put = broker.put("t", reconsume_times=2)
    broker.kernel.send_back.store_again("g", put.commit_log_offset, 0, times_max=-1)
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 0)
    broker.kernel.send_back.store_again("g", put.commit_log_offset, 0, times_max=2)
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_a_message_of_another_topic_is_not_found(broker: ServedBroker) -> None:
    broker.create_topic("t")
    put = broker.put("t")
    with pytest.raises(Refusal, match="look message by offset failed"):
        broker.kernel.send_back.store_again("g", put.commit_log_offset, -1, of_topics=("other",))
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 0)
    broker.kernel.send_back.store_again("g", put.commit_log_offset, -1, of_topics=("t",))
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_what_is_nowhere_is_refused(broker: ServedBroker) -> None:
    with pytest.raises(Refusal, match="look message by offset failed"):
        broker.kernel.send_back.store_again("g", 12_345, -1)
    with pytest.raises(GroupNotFound):
        broker.kernel.send_back.store_again("a b", 0, -1)
