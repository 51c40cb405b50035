"""Admin without await, and its parts."""

from rockhopper import RetryLater, ThreadedBroker
from rockhopper.sync import Admin, Consumer, Producer
from tests.support.hang import HANG_S


def test_its_parts_answer(broker: ThreadedBroker) -> None:
    with Admin(broker.nameserver) as admin, Producer(timeout_s=HANG_S) as producer:
        admin.create_topic("orders", queues=1)
        receipt = producer.send("orders", b"x")
        assert "orders" in admin.topics()
        assert admin.offsets.max_offset(receipt.queue) == 1
        assert admin.message(receipt.message_id, "orders").body == b"x"
        with Consumer("billing", "orders") as consumer:
            for message in consumer:
                consumer.retry_later(message, -1)
                break
        assert "billing" in admin.groups.names()
        (letter,) = admin.dead_letters.read("billing")
        assert letter.message.body == b"x"
        assert [each.target for each in admin.dead_letters.requeue("billing")] == ["orders"]
        assert RetryLater(-1).delay.level == -1
