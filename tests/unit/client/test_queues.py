"""MessageQueue: sorted as RocketMQ sorts queues, so that members share them out alike."""

from rockhopper.client.queues import MessageQueue


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    in_order = [
        MessageQueue("a", "broker-a", 2),
        MessageQueue("a", "broker-a", 10),
        MessageQueue("a", "broker-b", 0),
        MessageQueue("b", "broker-a", 0),
    ]
    assert sorted([in_order[n] for n in (2, 0, 3, 1)]) == in_order


def test_a_queue_reads_as_a_path_and_serves_as_a_key() -> None:
    queue = MessageQueue("orders", "broker-a", 3)
    assert str(queue) == "orders/broker-a/3"
    assert {queue: 1}[MessageQueue("orders", "broker-a", 3)] == 1
