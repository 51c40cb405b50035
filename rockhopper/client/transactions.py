"""TransactionProducer: a message and a local transaction that succeed or fail together.

The producer first stores a half message, which no consumer sees. Then it runs the local
transaction, and then tells the broker to commit or to roll back. If the broker learns no outcome,
because the producer died or the network failed, it asks later: it sends a check to any connected
producer of the group.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Self

import msgspec

from rockhopper.client.arguments import check_message, check_send_options
from rockhopper.client.callbacks import check_coroutine_function
from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    MalformedAnswerError,
    MessageRejectedError,
    RequestRefusedError,
    may_have_moved,
)
from rockhopper.client.middleware.hooks import Middleware
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.reachability import Reachability
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.producer import Producer
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt, SendStatus
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import Serializer
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.message import Message
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.properties import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED
from rockhopper.protocol.requests import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    decode_fields,
    encode_fields,
)
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_TRANSACTION_COMMIT,
    SYS_FLAG_TRANSACTION_NONE,
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)
from rockhopper.tasks import end_tasks, run_apart, run_in_background

log = logging.getLogger(__name__)

_CHECKS_AT_ONCE_MAX = 32
_RETRY_PAUSE_S = 0.1


class TransactionState(StrEnum):
    """The outcome of a local transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """Not decided yet: the broker asks again later."""


_FLAGS = {
    TransactionState.COMMIT: SYS_FLAG_TRANSACTION_COMMIT,
    TransactionState.ROLLBACK: SYS_FLAG_TRANSACTION_ROLLBACK,
    TransactionState.UNKNOWN: SYS_FLAG_TRANSACTION_NONE,
}
_TRACED_AS = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}

Check = Callable[[ReceivedMessage], Awaitable[TransactionState | str | None]]
"""Returns the outcome of a message's local transaction."""


class HalfMessage(msgspec.Struct, frozen=True):
    """Identifies a half message, with the fields of END_TRANSACTION."""

    topic: str
    address: str
    """The broker that asked; empty if no broker did."""
    broker_name: str
    queue_offset: int
    commit_log_offset: int
    message_id: str
    transaction_id: str


class Transaction:
    """A stored half message and its outcome."""

    def __init__(self, message: Message, receipt: SendReceipt) -> None:
        self.message = message
        self.receipt = receipt
        self.state = TransactionState.COMMIT
        """The outcome that is sent when the block ends normally."""
        self.is_confirmed = False
        """Whether the broker has confirmed the outcome; if not, it will check."""

    @property
    def message_id(self) -> str:
        """The id that consumers and `check` will see."""
        return self.receipt.message_id

    def roll_back(self) -> None:
        """Drop the message at the end of the block, even if the block raises."""
        self.state = TransactionState.ROLLBACK

    def leave_unknown(self) -> None:
        """Leave the decision to `check`: the broker asks later."""
        self.state = TransactionState.UNKNOWN


class TransactionProducer(Producer):
    """A Producer that can also send messages in transactions.

    It keeps connections to all brokers that the name server knows, so that they can ask about
    transactions with unknown outcome, also those of the group's other producers. `check` receives
    the message and returns a TransactionState or its text. It must look at recorded data, not at
    this process's memory. If it raises, the client logs the error and the broker asks again later.
    """

    def __init__(
        self,
        group: str,
        *,
        check: Check,
        nameserver: str | None = None,
        timeout_s: float = 3.0,
        retries: int = 2,
        compress_above_bytes: int | None = 4096,
        message_size_bytes_max: int = 4 * 1024 * 1024,
        trace: bool | str = False,
        serializer: Serializer | None = None,
        deserializer: Serializer | None = None,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`group` names all producers that can check each other's transactions.

        Clients that share `connections` may have only one TransactionProducer per group. Raises
        TypeError if `check` is not a coroutine function.
        """
        check_coroutine_function("check", check)
        super().__init__(
            nameserver,
            group=group,
            timeout_s=timeout_s,
            retries=retries,
            compress_above_bytes=compress_above_bytes,
            message_size_bytes_max=message_size_bytes_max,
            trace=trace,
            serializer=serializer,
            deserializer=deserializer,
            middleware=middleware,
            tls=tls,
            credentials=credentials,
            connections=connections,
        )
        self.session.checked_group = group
        self._check = check
        self._reachability = Reachability(self.session)
        self._checks_at_once = asyncio.Semaphore(_CHECKS_AT_ONCE_MAX)
        self.tasks: set[asyncio.Task[Any]] = set()
        self._running: set[str] = set()  # message ids whose blocks are still running

    async def start(self) -> Self:
        """Open the producer, and start to connect to the brokers."""
        await super().start()
        self._reachability.start()
        return self

    async def close(self) -> None:
        """Send the known outcomes to the brokers, cancel running checks, then close."""
        self.session.check_loop()
        try:
            if not self.session.is_inherited:
                await self._end_transactions()
        finally:
            await super().close()

    async def _end_transactions(self) -> None:
        try:
            await self._reachability.close()
            if self.tasks:
                await asyncio.wait(self.tasks, timeout=self._timeout_s)
        finally:
            await end_tasks(self.tasks)

    @asynccontextmanager
    async def transaction(
        self, message: Message, *, timeout_s: float | None = None
    ) -> AsyncGenerator[Transaction]:
        """Store a half message, run the block, then commit; if the block raises, ask `check`.

        A block that raises or is cancelled may already have recorded its work, so only
        `roll_back()` drops the message without a check. Raises as `send` does if storing the half
        message failed or is uncertain; then the block does not run. If the outcome cannot be sent
        to the broker, this is logged and does not raise: the broker will ask `check`.
        """
        transaction = await self._prepare(message, timeout_s)
        half = self._half_message(transaction)
        self._running.add(half.message_id)
        try:
            yield transaction
        except BaseException as error:
            self._running.discard(half.message_id)
            if transaction.state is not TransactionState.ROLLBACK:
                # The database may have committed before the error, so `check` decides.
                transaction.state = TransactionState.UNKNOWN
            ending = self._spawn(self._finish(transaction, half))
            if isinstance(error, Exception):
                await asyncio.shield(ending)
            raise
        self._running.discard(half.message_id)
        # A cancellation must not stop the outcome from being sent.
        await asyncio.shield(self._spawn(self._finish(transaction, half)))

    async def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Transaction], Awaitable[TransactionState | str]],
        *,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Store a half message, run `local`, and end the transaction with the state it returns.

        The outcome is left to `check` if `local` raises, is cancelled, or returns anything but a
        state.
        """
        if not callable(local):
            raise TypeError(
                f"the local transaction {local!r} cannot be called: pass the coroutine function "
                "without calling it; it gets the Transaction"
            )
        async with self.transaction(message, timeout_s=timeout_s) as transaction:
            outcome = local(transaction)
            if not inspect.isawaitable(outcome):
                raise TypeError(
                    f"the local transaction {local!r} is not a coroutine function: write it with "
                    "`async def`; `check` decides about the message"
                )
            transaction.state = read_state(await outcome, "the local transaction")
        return transaction

    async def _prepare(self, message: Message, timeout_s: float | None) -> Transaction:
        check_message(message)
        check_send_options(None, timeout_s)
        if message.is_delayed:
            raise MessageRejectedError("a message in a transaction cannot be delayed as well")

        async def deliver(messages: list[Message]) -> Sequence[SendReceipt]:
            system = {
                PROPERTY_TRANSACTION_PREPARED: "true",
                PROPERTY_PRODUCER_GROUP: self._group,
            }
            (whole,) = messages
            sys_flag = SYS_FLAG_TRANSACTION_PREPARED
            return await self._send_alone(whole, None, timeout_s, system, sys_flag)

        (receipt,) = await self._through_hooks("transaction", [message], deliver)
        transaction = Transaction(message, receipt)
        if receipt.status is not SendStatus.OK:
            transaction.state = TransactionState.ROLLBACK
            half = self._half_message(transaction)
            self._spawn(self._finish(transaction, half))
            raise RequestRefusedError(
                RequestCode.SEND_MESSAGE_V2,
                int(receipt.status),
                "the half message is not stored safely, and the transaction was not started",
                self._address(half),
            )
        return transaction

    def _half_message(self, transaction: Transaction) -> HalfMessage:
        receipt = transaction.receipt
        queue = receipt.queue
        try:
            _, _, commit_log_offset = decode_offset_message_id(receipt.offset_message_id)
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"broker {queue.broker_name} stored the half message, but its answer does not "
                f"identify it ({error})"
            ) from error
        return HalfMessage(
            queue.topic,
            "",
            queue.broker_name,
            receipt.queue_offset,
            commit_log_offset,
            receipt.message_id,
            receipt.transaction_id or receipt.message_id,
        )

    async def _finish(self, transaction: Transaction, half: HalfMessage) -> None:
        transaction.is_confirmed = await self._end(half, transaction.state, from_check=False)
        if self.trace is not None:
            self._trace_end(transaction.message, half, transaction.state, from_check=False)

    async def _end(self, half: HalfMessage, state: TransactionState, *, from_check: bool) -> bool:
        """Send the outcome of a half message; return whether the broker confirmed it.

        The outcome is sent again only if the broker cannot have received it: Apache's broker
        delivers a message twice that is committed twice.
        """
        fields = EndTransactionRequest(
            topic=half.topic,
            producer_group=self._group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=_FLAGS[state],
            from_transaction_check=from_check,
            msg_id=half.message_id,
            transaction_id=half.transaction_id,
            broker_name=half.broker_name or None,
        )
        code = RequestCode.END_TRANSACTION
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + self._timeout_s
        while True:
            address = half.address or self._address(half)
            try:
                if state is TransactionState.UNKNOWN:  # has no answer
                    await self.session.send_oneway(address, code, encode_fields(fields))
                    return False
                await self.session.request(address, code, encode_fields(fields))
                return True
            except ClientError as error:
                was_sent = isinstance(error, BrokerUnreachableError) and error.was_sent
                is_unheard = may_have_moved(error) and not was_sent
                if not is_unheard or now_s() + _RETRY_PAUSE_S >= deadline_s:
                    log.warning(
                        "the broker was not told to %s message %s, so it will check it: %s",
                        state,
                        half.message_id,
                        error,
                    )
                    return False
            await asyncio.sleep(_RETRY_PAUSE_S)

    def _address(self, half: HalfMessage) -> str:
        """Return the current address of a half message's broker; it may have moved."""
        route = self.session.routes.known(half.topic)
        return (route.master(half.broker_name) if route is not None else None) or ""

    def _take_request(self, connection: BrokerConnection, command: Command) -> Command | None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._spawn(self._answer_check(connection.address, command))
            return Command(int(ResponseCode.SUCCESS))
        return super()._take_request(connection, command)

    async def _answer_check(self, address: str, command: Command) -> None:
        try:
            fields = decode_fields(CheckTransactionStateRequest, command.ext)
            stored = decode_message(command.body)
        except ProtocolError as error:
            log.warning("invalid transaction check from %s: %s", address, error)
            return
        broker_name = fields.broker_name or ""
        message = ReceivedMessage(MessageQueue(stored.topic, broker_name, stored.queue_id), stored)
        group = message.properties.get(PROPERTY_PRODUCER_GROUP)
        if group != self._group:
            if group is not None and self.session.has_checker(group):
                return  # that client is asked as well
            log.warning("%s checked a transaction of %r with %r", address, self._group, group)
            return
        half = HalfMessage(
            stored.topic,
            address,
            broker_name,
            fields.tran_state_table_offset,
            fields.commit_log_offset,
            message.message_id,
            fields.transaction_id or message.message_id,
        )
        async with self._checks_at_once:
            state = await self._ask_check(message)
            await self._end(half, state, from_check=True)
        if self.trace is not None:
            self._trace_end(message, half, state, from_check=True)

    async def _ask_check(self, message: ReceivedMessage) -> TransactionState:
        if message.message_id in self._running:
            # No outcome is recorded yet, which `check` would take for a rollback.
            return TransactionState.UNKNOWN
        try:
            return read_state(await run_apart(self._check, message), "the check")
        except Exception:
            log.exception(
                "the check of message %s raised; the broker will ask again", message.message_id
            )
            return TransactionState.UNKNOWN

    def _trace_end(
        self,
        message: Message | ReceivedMessage,
        half: HalfMessage,
        state: TransactionState,
        *,
        from_check: bool,
    ) -> None:
        assert self.trace is not None
        self.trace.ended_transaction(
            self._group,
            message,
            half.message_id,
            half.transaction_id,
            _TRACED_AS[state],
            half.address or self._address(half),
            from_check=from_check,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = run_in_background(work, "ending a transaction")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


def read_state(answer: object, who: str) -> TransactionState:
    """Return the state that an application function returned; UNKNOWN if it is no state."""
    try:
        return TransactionState(answer)  # type: ignore[arg-type]
    except ValueError:
        if answer is not None:
            log.error(
                "%s returned %r, which counts as unknown: return a TransactionState or its text",
                who,
                answer,
            )
        return TransactionState.UNKNOWN
