"""Tables by queue, whose keys are objects or texts that hold one."""

import pytest

from rockhopper.protocol.bodies import GetConsumerStatusBody, TopicStatsTable
from rockhopper.protocol.errors import MalformedBodyError
from rockhopper.protocol.fastjson import MessageQueueKey

QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'


def test_queue_tables_are_read_in_both_forms() -> None:
    quoted = QUEUE.replace('"', '\\"')
    table = TopicStatsTable.decode(f'{{"offsetTable":{{"{quoted}":{{"maxOffset":9}}}}}}')
    assert table.offset_table[MessageQueueKey("T", "broker-a", 0)].max_offset == 9


def test_queues_are_found_at_any_depth() -> None:
    body = GetConsumerStatusBody.decode(f'{{"consumerTable":{{"cid":{{{QUEUE}:7}}}}}}')
    assert body.consumer_table == {"cid": {MessageQueueKey("T", "broker-a", 0): 7}}


@pytest.mark.parametrize("key", ["{}", '{"topic":"T"}', '{"topic":"T","queueId":"x"}', "{"])
def test_a_key_that_is_no_queue_is_refused(key: str) -> None:
    quoted = key.replace('"', '\\"')
    with pytest.raises(MalformedBodyError):
        TopicStatsTable.decode(f'{{"offsetTable":{{"{quoted}":{{"maxOffset":9}}}}}}')
