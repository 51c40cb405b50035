"""A broker in memory that also knows groups: members, locks, and messages sent back."""

import json
from collections.abc import Awaitable
from typing import Any, Self

from rockhopper.protocol.command import Command, encode_command
from tests.support.fake_broker import FakeBroker
from tests.support.fake_server import Answer, Handler, route


class GroupBroker(FakeBroker):
    """Knows the clients with heartbeats; `others` are further members, in allocation order."""

    def __init__(self, *, queues: int = 2) -> None:
        super().__init__(queues=queues)
        self.others: list[str] = []
        self.known: list[str] = []
        self.heartbeats: list[dict[str, Any]] = []
        self.refused_locks: set[int] = set()
        for code in (11, 14, 15, 29, 30, 31):
            self.on(code, self._retry_queue_apart(self.handlers[code]))
        self.on(34, self._heartbeat)
        self.on(36, lambda request: Command(0))
        self.on(38, self._members)
        self.on(41, self._lock)
        self.on(42, lambda request: Command(0))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.routes["%RETRY%billing"] = route({"a": self.address}, queues=1)
        return self

    async def notify(self) -> None:
        """Notify the consumer that a member joined or left."""
        await self.tell(Command(40, flag=2, ext={"consumerGroup": "billing"}))

    async def tell(self, command: Command) -> Command | None:
        """Send a request to the consumer on the connection of its heartbeats."""
        peer = self.connections[-1]
        if command.flag & 2:
            peer.transport.write(encode_command(command))
            return None
        return await peer.ask(command)

    def _retry_queue_apart(self, handler: Handler) -> Handler:
        """Give the retry topic a queue of its own, because FakeBroker knows only one topic."""

        def handle(request: Command) -> Answer | Awaitable[Answer]:
            if request.ext and request.ext["topic"].startswith("%RETRY%"):
                request.ext["queueId"] = "1000"
            return handler(request)

        return handle

    def _heartbeat(self, request: Command) -> Command:
        body = json.loads(request.body)
        self.heartbeats.append(body)
        if body["clientID"] not in self.known:
            self.known.append(body["clientID"])
        return Command(0)

    def _members(self, _request: Command) -> Command:
        members = [*self.known, *self.others]
        if not members:
            return Command(1, remark="no consumer for this group, billing")
        return Command(0, body=json.dumps({"consumerIdList": members}).encode())

    def _lock(self, request: Command) -> Command:
        asked = json.loads(request.body)["mqSet"]
        granted = [queue for queue in asked if queue["queueId"] not in self.refused_locks]
        return Command(0, body=json.dumps({"lockOKMQSet": granted}).encode())
