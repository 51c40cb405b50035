"""A broker in memory for transactions, replies and recalls, as seen by a producer."""

import base64
from typing import Self

from rockhopper.protocol.codes import FLAG_ONEWAY
from rockhopper.protocol.command import Command
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.requests import EndTransactionRequest, SendMessageRequestV2, decode_fields
from tests.support.fake_server import FakeServer, route
from tests.support.records import encode_message


class MessageBroker(FakeServer):
    """Serves the topic "orders" with queues 0 to 3; records what it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[tuple[SendMessageRequestV2, dict[str, str], bytes]] = []
        self.ended: list[EndTransactionRequest] = []
        self.on(34, lambda request: Command(0))
        self.on(35, lambda request: Command(0))
        self.on(310, self.store)
        self.on(325, lambda request: Command(0, ext={"msgId": "0", "queueId": "0"}))
        self.on(370, self._recall)
        self.on(37, self._end)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.serve_routes({"orders": route({"a": self.address})})
        cluster = (
            '{"brokerAddrTable":{"a":{"brokerAddrs":{0:"%s"},"brokerName":"a",'
            '"cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["a"]}}'
        )
        self.on(106, lambda request: Command(0, body=(cluster % self.address).encode()))
        return self

    def store(self, request: Command) -> Command:
        """Store a message, and return a handle if it has a delivery time."""
        fields = decode_fields(SendMessageRequestV2, request.ext)
        properties = decode_properties(fields.properties or "")
        number = len(self.stored)
        self.stored.append((fields, properties, request.body))
        ext = {
            "queueId": str(fields.queue_id),
            "queueOffset": str(number),
            "msgId": f"7F00000100002A9F{number * 100:016X}",
            "transactionId": properties["UNIQ_KEY"],
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        if "TIMER_DELAY_MS" in properties or "TIMER_DELIVER_MS" in properties:
            text = f"v1 {fields.topic} a 99 {properties['UNIQ_KEY']}"
            ext["recallHandle"] = base64.urlsafe_b64encode(text.encode()).decode()
        return Command(0, ext=ext)

    def check_of(self, number: int, *, opaque: int = 0) -> Command:
        """Return the request that checks the half message stored as `number`."""
        fields, properties, body = self.stored[number]
        record = encode_message(
            topic=fields.topic,
            body=body,
            properties=properties,
            queue_id=fields.queue_id,
            queue_offset=number,
            commit_log_offset=number * 100,
        )
        ext = {
            "tranStateTableOffset": str(number),
            "commitLogOffset": str(number * 100),
            "msgId": properties["UNIQ_KEY"],
            "transactionId": properties["UNIQ_KEY"],
            "bname": "a",
        }
        return Command(39, opaque=opaque, flag=FLAG_ONEWAY, ext=ext, body=record)

    def _end(self, request: Command) -> Command:
        self.ended.append(decode_fields(EndTransactionRequest, request.ext))
        return Command(0)

    def _recall(self, request: Command) -> Command:
        handle = (request.ext or {})["recallHandle"]
        message_id = base64.urlsafe_b64decode(handle).decode().split(" ")[4]
        return Command(0, ext={"msgId": message_id})
