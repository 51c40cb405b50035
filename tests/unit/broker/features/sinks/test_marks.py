"""The property that marks a message of a batch counts only where the broker has set it."""

import pytest

from rockhopper.broker.features.sinks.appender import BatchAppender
from rockhopper.protocol.message_ids import UniqueIds
from tests.support.served_broker import STORE_HOST, ServedBroker


@pytest.mark.parametrize(
    "text",
    [
        "x\x01RH_SINK\x01ab12:7:3\x02",
        "XRH_SINK\x01ab12:7:3\x02",
        "x\x01y\x01RH_SINK\x01ab12:7:3\x02",
        "RH_SINK\x01ab12:7:3 \x02",
    ],
)
def test_a_mark_inside_another_property_counts_for_no_batch(
    broker: ServedBroker, text: str
) -> None:
    appender = BatchAppender(
        broker.store,
        broker.tables.topics,
        broker.stats,
        lambda topic, queue_id, _properties: (topic, queue_id),
        UniqueIds(STORE_HOST[:-4], broker.clock.wall_ms),
        store_host=STORE_HOST,
        suffix=b"",
    )
    broker.put("orders", properties=text)
    assert appender.count_appended("ab12:7", 0) == 0
    broker.put("orders", properties="RH_SINK\x01ab12:7:3\x02")
    assert appender.count_appended("ab12:7", 0) == 4
