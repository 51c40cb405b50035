"""Handles the requests that brokers send to a consumer over its own connections.

40   a member joined or left        220  reset offsets         221  return positions
307  return running information     309  consume this message now and return the result
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rockhopper.client.consuming.assignment import Assignment
from rockhopper.client.consuming.handout import Handout
from rockhopper.client.consuming.locks import ConsumerLocks
from rockhopper.client.consuming.options import Handler
from rockhopper.client.consuming.process_queue import ProcessQueue
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.network.connection import BrokerConnection, RequestAnswer
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueueKey,
    ResetOffsetBody,
    SubscriptionData,
)
from rockhopper.protocol.codes import MQ_VERSION, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.tasks import run_apart, start_task

log = logging.getLogger(__name__)

_ASYNCIO = str(Path(asyncio.__file__).parent)

Answer = RequestAnswer | asyncio.Future[RequestAnswer]


class Notifications:
    """Answers the requests of brokers for one consumer."""

    def __init__(
        self,
        session: Session,
        settings: ConsumerSettings,
        assignment: Assignment,
        handout: Handout,
        locks: ConsumerLocks | None,
        members_changed: Callable[[], None],
    ) -> None:
        self.handler: Handler | None = None
        """The handler that a message of request 309 is passed to."""
        self._session = session
        self._settings = settings
        self._assignment = assignment
        self._handout = handout
        self._locks = locks
        self._members_changed = members_changed
        self._started_ms = _now_ms()
        self._counted = (time.monotonic(), 0, 0)
        self._answers: dict[int, Callable[[Command], Answer]] = {
            int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): self._notify,
            int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): self._reset,
            int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): self._status,
            int(RequestCode.GET_CONSUMER_RUNNING_INFO): self._running_info,
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): self._consume_directly,
        }

    def handle(self, connection: BrokerConnection, command: Command) -> Answer:
        """Handle a broker's request; return None for codes that a consumer does not support."""
        answer = self._answers.get(command.code)
        if answer is None:
            return None
        ext = command.ext or {}
        group = ext.get("consumerGroup") or ext.get("group")
        if group != self._settings.group:
            return Command(
                int(ResponseCode.SYSTEM_ERROR),
                remark=f"The Consumer Group <{group}> not exist in this consumer",
            )
        try:
            return answer(command)
        except ProtocolError as error:
            log.warning("invalid request %d from %s: %s", command.code, connection.address, error)
            return Command(int(ResponseCode.SYSTEM_ERROR), remark=str(error))

    def _notify(self, _command: Command) -> Answer:
        # Commit before anything else: a joining member will soon read the group's offsets.
        self._assignment.commit_all_soon()
        self._members_changed()
        return Command(int(ResponseCode.SUCCESS))

    def _reset(self, command: Command) -> Answer:
        offsets = _reset_offsets(command.body)
        for queue, offset in offsets.items():
            if queue in self._assignment.held:
                log.warning("%s: reset to offset %d by an operator", queue, offset)
                self._assignment.reset(queue, offset)
        return Command(int(ResponseCode.SUCCESS))

    def _status(self, command: Command) -> Answer:
        topic = (command.ext or {}).get("topic")
        body = GetConsumerStatusBody(
            message_queue_table={
                _key(queue): held.position
                for queue, held in self._assignment.held.items()
                if not topic or queue.topic == topic
            }
        )
        return Command(int(ResponseCode.SUCCESS), body=body.encode())

    def _running_info(self, command: Command) -> Answer:
        info = {
            "mqPopTable": {},
            "mqTable": {
                _key(queue): self._queue_info(queue, held)
                for queue, held in self._assignment.held.items()
            },
            "properties": {
                "PROP_CLIENT_VERSION": f"V{MQ_VERSION}",
                "PROP_CONSUMEORDERLY": str(self._settings.orderly).lower(),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_NAMESERVER_ADDR": str(self._session.name_services),
                "PROP_THREADPOOL_CORE_SIZE": "1",
            },
            "statusTable": self._status_table(),
            "subscriptionSet": [
                SubscriptionData.from_subscription(subscription)
                for subscription in self._settings.subscriptions.values()
            ],
            "userConsumerInfo": {},
        }
        if (command.ext or {}).get("jstackEnable") == "true":
            info["jstack"] = _tasks_text()
        text = fastjson.dumps(info)
        body = text if isinstance(text, bytes) else text.encode()
        return Command(int(ResponseCode.SUCCESS), body=body)

    def _queue_info(self, queue: MessageQueue, held: ProcessQueue) -> dict[str, Any]:
        return {
            "cachedMsgCount": held.room.count,
            "cachedMsgMaxOffset": max(held.fetch_offset - 1, 0) if held.room.count else 0,
            "cachedMsgMinOffset": held.position if held.room.count else 0,
            "cachedMsgSizeInMiB": held.room.bytes >> 20,
            "commitOffset": held.committed,
            "droped": held.is_dropped,
            "lastConsumeTimestamp": held.last_finish_ms,
            "lastLockTimestamp": 0,
            "lastPullTimestamp": held.last_fetch_ms,
            "locked": self._locks is not None and self._locks.holds(queue),
            "transactionMsgCount": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgMinOffset": 0,
            "tryUnlockTimes": 0,
        }

    def _status_table(self) -> dict[str, dict[str, Any]]:
        """Return the rates since the last call, all under the first topic.

        Messages are not counted by topic.
        """
        at_s, finished, failed = self._counted
        now_s = time.monotonic()
        passed_s = max(now_s - at_s, 0.001)
        self._counted = (now_s, self._handout.finished, self._handout.failed)
        topic = next(iter(self._settings.subscriptions), "")
        rate = round((self._handout.finished - finished) / passed_s, 3)
        return {
            topic: {
                "consumeFailedMsgs": self._handout.failed,
                "consumeFailedTPS": round((self._handout.failed - failed) / passed_s, 3),
                "consumeOKTPS": rate,
                "consumeRT": 0.0,
                "pullRT": 0.0,
                "pullTPS": rate,
            }
        }

    def _consume_directly(self, command: Command) -> Answer:
        stored = decode_message(command.body)
        broker_name = (command.ext or {}).get("brokerName", "")
        queue = MessageQueue(stored.topic, broker_name, stored.queue_id)
        message = ReceivedMessage(queue, stored)
        return start_task(self._handle_directly(message))

    async def _handle_directly(self, message: ReceivedMessage) -> RequestAnswer:
        started_s = time.monotonic()
        result: dict[str, Any] = {
            "autoCommit": True,
            "consumeResult": "CR_SUCCESS",
            "order": self._settings.orderly,
        }
        if self.handler is None:
            result["consumeResult"] = "CR_LATER"
            result["remark"] = "this consumer has no handler: it reads its messages in a loop"
        else:
            try:
                await run_apart(self.handler, message)
            except Exception as error:
                log.warning("%r, sent by an operator, failed", message, exc_info=error)
                result["consumeResult"] = "CR_THROW_EXCEPTION"
                result["remark"] = f"{type(error).__name__}: {error}"
        result["spentTimeMills"] = round((time.monotonic() - started_s) * 1000)
        text = fastjson.dumps(result)
        body = text if isinstance(text, bytes) else text.encode()
        return Command(int(ResponseCode.SUCCESS), body=body)


def _reset_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Read both formats: a map with queues as keys, and the list sent to C++ clients."""
    value = fastjson.loads(body)
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if isinstance(table, list):
        return {
            _queue(MessageQueueKey.parse(item)): int(item["offset"])
            for item in table
            if isinstance(item, dict) and "offset" in item
        }
    return {_queue(key): at for key, at in ResetOffsetBody.decode(body).offset_table.items()}


def _queue(key: MessageQueueKey) -> MessageQueue:
    return MessageQueue(key.topic, key.broker_name, key.queue_id)


def _key(queue: MessageQueue) -> MessageQueueKey:
    return MessageQueueKey(queue.topic, queue.broker_name, queue.queue_id)


def _tasks_text() -> str:
    """Return where each task of this event loop is suspended: the counterpart of Java's jstack."""
    lines = []
    for task in asyncio.all_tasks():
        waiting: Any = task.get_coro()
        while inspect.iscoroutine(inner := getattr(waiting, "cr_await", None)):
            if inner.cr_code.co_filename.startswith(_ASYNCIO):
                break  # show the application's code, not asyncio's
            waiting = inner
        frame = getattr(waiting, "cr_frame", None)
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "done"
        lines.append(f"{task.get_name()} at {where}")
    return "\n".join(sorted(lines))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
