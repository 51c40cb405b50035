"""Notifications: what a consumer answers when a broker asks, and what it does for that."""

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from rockhopper.client.consuming.notifications import Notifications
from rockhopper.client.consuming.process_queue import ProcessQueue, Room
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import encode_stored_message
from rockhopper.protocol.subscription import Subscription

SETTINGS = ConsumerSettings(
    "billing", {"orders": Subscription("orders"), "%RETRY%billing": Subscription("%RETRY%billing")}
)
A, B = MessageQueue("orders", "a", 0), MessageQueue("%RETRY%billing", "a", 1)
NOTIFY, RESET, STATUS, RUNNING_INFO, CONSUME = 40, 220, 221, 307, 309


class Parts:
    """A consumer that holds two queues, in place of all that Notifications asks."""

    name_services = "n:9876"
    address = "10.0.0.1:10911"

    def __init__(self, **settings: Any) -> None:
        self.finished, self.failed = 7, 2
        self.locked: set[MessageQueue] = {B}
        self.held = {queue: self._queue(queue) for queue in (A, B)}
        self.done: list[object] = []
        self.notifications = Notifications(
            cast(Any, self),
            replace(SETTINGS, **settings),
            cast(Any, self),
            cast(Any, self),
            cast(Any, self),
            lambda: self.done.append("members changed"),
        )

    def _queue(self, queue: MessageQueue) -> ProcessQueue:
        held = ProcessQueue(queue, 4, room=Room(9, 1 << 30))
        if queue == A:
            stored = [StoredMessage("orders", 0, n, n * 100, b"x") for n in (4, 5)]
            held.append_messages([ReceivedMessage(queue, each) for each in stored], 6)
        return held

    def commit_all_soon(self) -> None:
        self.done.append("commits")

    def reset(self, queue: MessageQueue, offset: int) -> None:
        self.done.append((queue, offset))

    def holds(self, queue: MessageQueue) -> bool:
        return queue in self.locked

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> Command | None:
        command = Command(code, ext={"consumerGroup": "billing"} | ext, body=body)
        answer = self.notifications.handle(cast(Any, self), command)
        return await answer if isinstance(answer, asyncio.Future) else answer

    async def tell(self, code: int, body: bytes = b"", **ext: str) -> dict[str, Any]:
        answer = await self.ask(code, body, **ext)
        assert answer is not None
        assert answer.code == 0, answer.remark
        document = json.loads(answer.body)
        assert isinstance(document, dict)
        return document


async def test_offsets_are_committed_before_a_change_of_members_is_looked_into() -> None:
    parts = Parts()
    answer = await parts.ask(NOTIFY)
    assert answer is not None
    assert (answer.code, parts.done) == (0, ["commits", "members changed"])


async def test_what_a_consumer_does_not_know_is_left_to_others() -> None:
    assert await Parts().ask(39) is None


@pytest.mark.parametrize("field", ["consumerGroup", "group"])
async def test_another_group_is_refused(field: str) -> None:
    parts = Parts()
    answer = await parts.ask(NOTIFY, b"", **{"consumerGroup": "", field: "others"})
    assert answer is not None
    assert answer.code == 1
    assert answer.remark == "The Consumer Group <others> not exist in this consumer"
    assert parts.done == []


async def test_a_group_may_be_named_as_javas_tools_do() -> None:
    answer = await Parts().ask(NOTIFY, consumerGroup="", group="billing")
    assert answer is not None
    assert answer.code == 0


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:9,'
        b'{"brokerName":"b","queueId":0,"topic":"orders"}:3}}',
        b'{"offsetTable":[{"brokerName":"a","queueId":0,"topic":"orders","offset":9},'
        b'{"brokerName":"b","queueId":0,"topic":"orders","offset":3},{"brokerName":"a"}]}',
    ],
)
async def test_only_queues_that_are_held_are_reset(body: bytes) -> None:
    parts = Parts()
    answer = await parts.ask(RESET, body)
    assert answer is not None
    assert (answer.code, parts.done) == (0, [(A, 9)])


async def test_a_body_that_cannot_be_read_is_refused() -> None:
    answer = await Parts().ask(RESET, b"{")
    assert answer is not None
    assert answer.code == 1
    assert answer.remark


async def test_where_queues_stand_is_told_by_topic() -> None:
    parts = Parts()
    both = await parts.ask(STATUS)
    one = await parts.ask(STATUS, topic="orders")
    assert both is not None
    assert one is not None
    assert both.body.count(b":4") == 2
    assert b"RETRY" not in one.body
    assert b'"topic":"orders"}:4' in one.body


async def test_how_it_is_is_told_with_every_queue() -> None:
    parts = Parts(orderly=True)
    answer = await parts.ask(RUNNING_INFO)
    assert answer is not None
    text = answer.body.decode()
    for shown in (
        '"cachedMsgCount":2',
        '"cachedMsgMinOffset":4',
        '"cachedMsgMaxOffset":5',
        '"cachedMsgCount":0',
        '"locked":true',
        '"locked":false',
        '"PROP_CONSUMEORDERLY":"true"',
        '"PROP_NAMESERVER_ADDR":"n:9876"',
        '"consumeFailedMsgs":2',
    ):
        assert shown in text
    assert text.count('"cachedMsgMaxOffset":0') == 1
    assert "jstack" not in text
    traced = await parts.ask(RUNNING_INFO, jstackEnable="true")
    assert traced is not None
    assert "test_notifications.py:" in json.dumps(traced.body.decode())


async def test_rates_are_of_the_time_since_somebody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("rockhopper.client.consuming.notifications.time.monotonic", lambda: now_s)
    parts = Parts()
    now_s += 2
    assert b'"consumeOKTPS":3.5' in (await parts.ask(RUNNING_INFO)).body  # type: ignore[union-attr]
    parts.finished, parts.failed = 9, 3
    now_s += 4
    answer = await parts.ask(RUNNING_INFO)
    assert answer is not None
    assert b'"consumeOKTPS":0.5' in answer.body
    assert b'"consumeFailedTPS":0.25' in answer.body


def sent() -> bytes:
    return encode_stored_message(StoredMessage("orders", 3, 11, 500, b"hello"))


async def test_a_message_of_an_operator_is_handled_now() -> None:
    parts = Parts()
    seen: list[ReceivedMessage] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message)

    parts.notifications.handler = handler
    result = await parts.tell(CONSUME, sent(), brokerName="a")
    assert (result["consumeResult"], result["order"]) == ("CR_SUCCESS", False)
    assert (seen[0].body, seen[0].queue) == (b"hello", MessageQueue("orders", "a", 3))


async def test_a_handler_that_fails_is_told_with_its_reason() -> None:
    parts = Parts()

    async def handler(_message: ReceivedMessage) -> None:
        raise ValueError("no such customer")

    parts.notifications.handler = handler
    result = await parts.tell(CONSUME, sent())
    assert result["consumeResult"] == "CR_THROW_EXCEPTION"
    assert result["remark"] == "ValueError: no such customer"


async def test_a_consumer_that_reads_in_a_loop_handles_it_later() -> None:
    result = await Parts().tell(CONSUME, sent())
    assert (result["consumeResult"], result["autoCommit"]) == ("CR_LATER", True)
    assert "reads its messages in a loop" in result["remark"]
