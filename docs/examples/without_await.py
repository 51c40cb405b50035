"""Send, consume and create topics in a script without an event loop."""

from rockhopper import Message, ReceivedMessage
from rockhopper.sync import Admin, Consumer, Producer


def main() -> None:
    with Admin() as admin:
        admin.create_topic("parcels", queues=2)

    with Producer() as producer:
        receipt = producer.send("parcels", b"first", keys="p-1")
        print("stored at", receipt.queue, receipt.queue_offset)
        producer.send_batch([Message("parcels", b"%d" % number) for number in range(9)])

    with Consumer("shipping", "parcels") as consumer:
        for message in consumer:
            print(message.body)  # leaving the loop acknowledges this message
            break

        handled: list[bytes] = []

        def ship(message: ReceivedMessage) -> None:  # runs in four threads
            handled.append(message.body)
            if len(handled) == 9:
                consumer.stop()

        consumer.run(ship, concurrency=4)
        print(len(handled), "shipped by threads")


if __name__ == "__main__":
    main()
