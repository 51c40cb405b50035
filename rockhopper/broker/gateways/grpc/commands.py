"""Commands: the broker's notices and questions to clients over their Telemetry streams.

A question contains a nonce, which the answer repeats. Administrators ask by remoting requests
(kernel/processors/client_calls.py) and receive RocketMQ's JSON.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from rockhopper.broker.gateways.grpc.converting import fill_message
from rockhopper.broker.users.peer import TransactionCheck
from rockhopper.protocol import fastjson
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import TelemetryCommand
from rockhopper.protocol.grpc_v2.transaction_id import TransactionId
from rockhopper.protocol.store.message_codec import decode_message

_RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}
_NOT_UNDERSTOOD = "CR_THROW_EXCEPTION"


def recovery_of(check: TransactionCheck) -> Any:
    """Return the command that asks how a transaction ended; the answer is an EndTransaction."""
    half = check.half
    command = TelemetryCommand()
    recovery = command.recover_orphaned_transaction_command
    fill_message(recovery.message, check.message, check.message.topic, "")
    recovery.transaction_id = str(
        TransactionId(half.message_id, half.queue_offset, half.commit_log_offset)
    )
    return command


class Commands:
    """The unanswered questions to one client."""

    def __init__(self, tell: Callable[[Any], int]) -> None:
        """*tell* sends a command and returns its size in bytes; 0: it cannot be sent."""
        self._tell = tell
        self._asked: dict[str, asyncio.Future[Any]] = {}

    async def running_info(self, settings: Any, *, with_stacks: bool) -> bytes:
        """Return the client's settings, and its stacks if requested.

        Raises ConnectionResetError.
        """
        stacks = None
        if with_stacks:
            command = TelemetryCommand()
            answer = await self._ask(command, command.print_thread_stack_trace_command)
            stacks = answer.thread_stack_trace.thread_stack_trace
        agent = settings.user_agent
        info = {
            "jstack": stacks,
            "mqTable": {},
            "mqPopTable": {},
            "properties": {
                "PROP_CLIENT_VERSION": agent.version,
                "PROP_CONSUME_TYPE": "CONSUME_POP",
                "hostname": agent.hostname,
                "platform": agent.platform,
                **dict(settings.client_properties),
            },
            "statusTable": {},
            "subscriptionSet": list(_subscriptions(settings)),
        }
        return fastjson.dumps(info).encode()

    async def consume_directly(self, record: bytes) -> bytes:
        """Return the result of a trial consumption of a message. Raises ConnectionResetError."""
        stored = decode_message(record)
        command = TelemetryCommand()
        fill_message(command.verify_message_command.message, stored, stored.topic, "")
        begun_s = asyncio.get_running_loop().time()
        answer = await self._ask(command, command.verify_message_command)
        spent_s = asyncio.get_running_loop().time() - begun_s
        result = {
            "autoCommit": True,
            "consumeResult": _RESULTS.get(answer.status.code, _NOT_UNDERSTOOD),
            "order": False,
            "remark": answer.status.message or None,
            "spentTimeMills": round(spent_s * 1000),
        }
        return fastjson.dumps(result).encode()

    async def _ask(self, command: Any, question: Any) -> Any:
        """Send *command* and return the client's answer; *question* is the part with the nonce."""
        question.nonce = nonce = uuid.uuid4().hex
        answer = self._asked[nonce] = asyncio.get_running_loop().create_future()
        try:
            if not self._tell(command):
                raise ConnectionResetError("the client has no Telemetry stream")
            return await answer
        finally:
            del self._asked[nonce]

    def answered(self, nonce: str, answer: Any) -> None:
        """Deliver an answer to its question; ignore a late one."""
        future = self._asked.get(nonce)
        if future is not None and not future.done():
            future.set_result(answer)

    def close(self) -> None:
        """Fail all open questions: the client has disconnected."""
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the client has disconnected"))


def _subscriptions(settings: Any) -> Iterable[dict[str, str]]:
    for entry in settings.subscription.subscriptions:
        yield {"topic": entry.topic.name, "subString": entry.expression.expression}
