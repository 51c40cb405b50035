"""Requests to a broker or name server, each on a connection of its own."""

from collections.abc import Mapping

from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.wire import WireClient


async def ask(
    address: str, code: RequestCode, ext: Mapping[str, str] | None = None, body: bytes = b""
) -> Command:
    """Send one request, on a connection of its own."""
    async with WireClient(address) as client:
        return await client.ask(code, dict(ext or {}), body)


async def route(nameserver: str, topic: str) -> Command:
    """Query the route of *topic*."""
    return await ask(nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def send_fields(topic: str, queue_id: int = 0) -> dict[str, str]:
    """Return the header of a send in full, as a Java client writes it."""
    return {
        "producerGroup": "tests",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "",
    }


def short_send_fields(topic: str, queue_id: int = 0, properties: str = "") -> dict[str, str]:
    """Return a send header with the short names of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""
    return {
        "a": "tests",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }


async def send(address: str, topic: str, body: bytes, queue_id: int = 0) -> Command:
    """Send one message."""
    return await ask(address, RequestCode.SEND_MESSAGE, send_fields(topic, queue_id), body)


def pull_fields(topic: str, offset: int, queue_id: int = 0, suspend_ms: int = 0) -> dict[str, str]:
    """Return the header of a pull; with *suspend_ms* it waits for messages."""
    return {
        "consumerGroup": "tests",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if suspend_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": "*",
        "subVersion": "0",
    }


def topic_fields(topic: str, queues: int = 4, **changes: str) -> dict[str, str]:
    """Return the header that creates a topic."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        **changes,
    }


async def pull(address: str, topic: str, offset: int = 0, queue_id: int = 0) -> list[StoredMessage]:
    """Return the messages of a queue from *offset* on."""
    answer = await ask(address, RequestCode.PULL_MESSAGE, pull_fields(topic, offset, queue_id))
    return decode_messages(answer.body)


async def pull_all(address: str, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    """Return all messages of a queue that starts at offset 0, over one connection."""
    found: list[StoredMessage] = []
    async with WireClient(address) as client:
        while True:
            fields = pull_fields(topic, len(found), queue_id)
            answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
            messages = decode_messages(answer.body)
            if not messages:
                return found
            found += messages
