"""A pop consumer over a raw socket: headers, and how it reads the answers."""

import base64
import json
from collections.abc import Mapping

from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.raw_peer import RawPeer

GROUP, TOPIC = "pickers", "parcels"


def pop_fields(**changes: object) -> dict[str, str]:
    """Return the header of a pop that does not wait."""
    fields: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
        "order": "false",
    }
    return {name: str(value) for name, value in (fields | changes).items()}


def check_points(answer: Command) -> dict[int, str]:
    """Return queue offset -> extra info (POP_CK) of each message not from a retry topic."""
    ext = answer.ext or {}
    starts = {}
    for part in ext["startOffsetInfo"].split(";"):
        flag, queue_id, start = part.split(" ")
        starts[flag, queue_id] = start
    found = {}
    for part in ext["msgOffsetInfo"].split(";"):
        flag, queue_id, offsets = part.split(" ")
        for offset in offsets.split(",") if flag == "0" else ():
            found[int(offset)] = (
                f"{starts[flag, queue_id]} {ext['popTime']} {ext['invisibleTime']} "
                f"{ext['reviveQid']} {flag} broker-a {queue_id} {offset}"
            )
    return found


class PopConsumer:
    """A consumer of one queue on one connection."""

    def __init__(self, peer: RawPeer, group: str = GROUP, topic: str = TOPIC) -> None:
        self.peer = peer
        self.group, self.topic = group, topic

    async def send(self, *bodies: bytes, properties: str = "") -> None:
        """Send messages to queue 0."""
        for body in bodies:
            ext = {
                "producerGroup": "senders",
                "topic": self.topic,
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "1",
                "queueId": "0",
                "sysFlag": "0",
                "bornTimestamp": "1700000000000",
                "flag": "0",
                "properties": properties,
            }
            answer = await self.peer.ask(Code.SEND_MESSAGE, ext, body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def pop(self, **changes: object) -> list[StoredMessage]:
        """Pop, and set POP_CK in each message like clients do; empty if there is nothing."""
        fields = {"consumerGroup": self.group, "topic": self.topic} | changes
        answer = await self.peer.ask(Code.POP_MESSAGE, pop_fields(**fields))
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        return self.messages(answer)

    def messages(self, answer: Command) -> list[StoredMessage]:
        """Return the messages of an answer."""
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        points = check_points(answer)
        messages = decode_messages(answer.body)
        for message in messages:
            if "POP_CK" not in message.properties:
                message.properties["POP_CK"] = points[message.queue_offset]
        return messages

    def ack_fields(self, message: StoredMessage, **changes: object) -> dict[str, str]:
        """Return the header of an acknowledgement."""
        info = message.properties["POP_CK"]
        parts = info.split(" ")
        topic = f"%RETRY%{self.group}+{self.topic}" if parts[4] == "2" else self.topic
        fields: Mapping[str, object] = {
            "consumerGroup": self.group,
            "topic": topic,
            "queueId": parts[6],
            "offset": parts[7],
            "extraInfo": info,
        }
        return {name: str(value) for name, value in {**fields, **changes}.items()}

    async def ack(self, message: StoredMessage) -> Command:
        """Acknowledge one message."""
        return await self.peer.ask(Code.ACK_MESSAGE, self.ack_fields(message))

    async def change(self, message: StoredMessage, invisible_ms: int) -> Command:
        """Make a message come back after *invisible_ms*; its POP_CK becomes the new one."""
        answer = await self.peer.ask(
            Code.CHANGE_MESSAGE_INVISIBLETIME,
            self.ack_fields(message, invisibleTime=invisible_ms),
        )
        if answer.code == ResponseCode.SUCCESS:
            assert answer.ext is not None
            parts = message.properties["POP_CK"].split(" ")
            parts[1:4] = [answer.ext[name] for name in ("popTime", "invisibleTime", "reviveQid")]
            message.properties["POP_CK"] = " ".join(parts)
        return answer


def batch_ack_body(messages: list[StoredMessage], group: str = GROUP, topic: str = TOPIC) -> bytes:
    """Return the body of an acknowledgement of messages of one pop and one queue."""
    parts = messages[0].properties["POP_CK"].split(" ")
    start = int(parts[0])
    bits = 0
    for message in messages:
        bits |= 1 << (int(message.properties["POP_CK"].split(" ")[7]) - start)
    ack = {
        "c": group,
        "t": topic,
        "r": parts[4],
        "so": start,
        "q": int(parts[6]),
        "rq": int(parts[3]),
        "pt": int(parts[1]),
        "it": int(parts[2]),
        "b": base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode(),
    }
    return json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()
