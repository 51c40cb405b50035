"""What two masters, a and b, say of consumer groups, in the bodies of their answers."""

import json

from rockhopper.client.network.addresses import BrokerAddress

MASTERS = {name: BrokerAddress("c", f"broker-{name}", 0, name) for name in ("a", "b")}


def groups(**retry_queues: int) -> bytes:
    """Settings of groups by name, with how many retry queues each has."""
    table = {name: {"groupName": name, "retryQueueNums": n} for name, n in retry_queues.items()}
    return json.dumps({"subscriptionGroupTable": table}).encode()


def connections(*members: str, **filters: str) -> bytes:
    """Who is online, and topics with filters."""
    return json.dumps(
        {
            "connectionSet": [
                {"clientId": name, "clientAddr": f"{name}:1", "language": "JAVA", "version": 479}
                for name in members
            ],
            "subscriptionTable": {
                topic: {"topic": topic, "subString": text} for topic, text in filters.items()
            },
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        }
    ).encode()


def _by_queue(name: str, rows: list[tuple[str, str, int, str]]) -> bytes:
    cells = [
        f'{{"brokerName":"{broker}","queueId":{queue_id},"topic":"{topic}"}}:{value}'
        for topic, broker, queue_id, value in rows
    ]
    return f'{{"{name}":{{{",".join(cells)}}}}}'.encode()


def stats(*rows: tuple[str, str, int, int, int, int]) -> bytes:
    """Topic, broker, queue, its end, where the group stands, when its last message was stored."""
    return _by_queue(
        "offsetTable",
        [
            (
                topic,
                broker,
                queue_id,
                f'{{"brokerOffset":{end},"consumerOffset":{at},"lastTimestamp":{last_ms}}}',
            )
            for topic, broker, queue_id, end, at, last_ms in rows
        ],
    )


def topic_stats(*rows: tuple[str, str, int, int]) -> bytes:
    """Topic, broker, queue and its first message."""
    return _by_queue(
        "offsetTable",
        [
            (
                topic,
                broker,
                queue_id,
                f'{{"minOffset":{low},"maxOffset":100,"lastUpdateTimestamp":0}}',
            )
            for topic, broker, queue_id, low in rows
        ],
    )


def running(*queues: tuple[str, str, int]) -> bytes:
    """The queues that a member reads."""
    return _by_queue("mqTable", [(*queue, "{}") for queue in queues])
