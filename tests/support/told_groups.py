"""The data of two masters, a and b, about consumer groups, as bodies of answers."""

import json

from rockhopper.client.network.addresses import BrokerAddress

MASTERS = {name: BrokerAddress("c", f"broker-{name}", 0, name) for name in ("a", "b")}


def groups(**retry_queues: int) -> bytes:
    """Return the settings of groups by name, each with its number of retry queues."""
    table = {name: {"groupName": name, "retryQueueNums": n} for name, n in retry_queues.items()}
    return json.dumps({"subscriptionGroupTable": table}).encode()


def connections(*members: str, **filters: str) -> bytes:
    """Return the online members, and topics with filters."""
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
    """Return rows of topic, broker, queue, its end, the group's offset, and the last store time."""
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
    """Return rows of topic, broker, queue and its first message."""
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


def running(*queues: tuple[str, str, int], **filters: str) -> bytes:
    """Return the queues that a member reads, and topics with its filters."""
    queue_table = _by_queue("mqTable", [(*queue, "{}") for queue in queues])
    subscriptions = [{"topic": topic, "subString": text} for topic, text in filters.items()]
    return queue_table[:-1] + f',"subscriptionSet":{json.dumps(subscriptions)}}}'.encode()
