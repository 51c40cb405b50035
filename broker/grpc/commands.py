"""Commands: what the broker tells and asks clients by their Telemetry streams.

A question has a nonce, which the answer repeats.
"""

import asyncio
import uuid
from typing import Any

from rockhopper.broker.access.peer import TransactionCheck
from rockhopper.broker.grpc.converting import delivered
from rockhopper.protocol.grpc_v2.messages import TelemetryCommand
from rockhopper.protocol.grpc_v2.transaction_id import TransactionId


def recovery_of(check: TransactionCheck) -> Any:
    """The question how a transaction ended; the answer is an EndTransaction."""
    half = check.half
    command = TelemetryCommand()
    recovery = command.recover_orphaned_transaction_command
    recovery.message.CopyFrom(delivered(check.message, check.message.topic, ""))
    recovery.transaction_id = str(
        TransactionId(half.message_id, half.queue_offset, half.commit_log_offset)
    )
    return command


class Commands:
    """Questions to one client that are not answered yet."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[Any]] = {}

    def nonce(self) -> tuple[str, asyncio.Future[Any]]:
        """A nonce for a question, and what becomes its answer."""
        nonce = uuid.uuid4().hex
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[nonce] = answer
        answer.add_done_callback(lambda _: self._asked.pop(nonce, None))
        return nonce, answer

    def answered(self, nonce: str, answer: Any) -> None:
        """Take an answer; nobody waits for a late one."""
        future = self._asked.get(nonce)
        if future is not None and not future.done():
            future.set_result(answer)

    def close(self) -> None:
        """The client has gone."""
        for future in list(self._asked.values()):
            if not future.done():
                future.set_exception(ConnectionResetError("the client has gone"))
