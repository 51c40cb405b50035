"""Producer and TransactionProducer without `await`."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict, TypeVar, Unpack

from rockhopper.client import producer, transactions
from rockhopper.client.arguments import takes
from rockhopper.client.callbacks import make_plain_function
from rockhopper.client.middleware.hooks import Middleware
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import Serializer
from rockhopper.client.sync.face import (
    Face,
    show_options_of,
    wrap_looking,
    wrap_waiting,
)
from rockhopper.client.transactions import Transaction, TransactionState, read_state
from rockhopper.protocol.message import Message

_Producer = TypeVar("_Producer", bound=producer.Producer)

Check = Callable[[ReceivedMessage], TransactionState | str | None]


class SyncSender(Face[_Producer]):
    """The methods of both producers; in a forked child the first call opens new connections."""

    _reopens_in_child = True

    send = wrap_waiting(producer.Producer.send)
    message = wrap_looking(producer.Producer.message)
    send_batch = wrap_waiting(producer.Producer.send_batch)
    send_many = wrap_waiting(producer.Producer.send_many)
    send_oneway = wrap_waiting(producer.Producer.send_oneway)
    request = wrap_waiting(producer.Producer.request)
    reply = wrap_waiting(producer.Producer.reply)
    recall = wrap_waiting(producer.Producer.recall)
    queues = wrap_waiting(producer.Producer.queues)


class Producer(SyncSender[producer.Producer]):
    """Sends messages, from any thread; see rockhopper.Producer.

    Create one per process, also before a fork: each child opens its own connections.
    """

    @takes(producer.Producer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(producer.Producer, *args, **kwargs)


class TransactionOptions(TypedDict, total=False):
    """The options of a TransactionProducer besides its group and its check."""

    nameserver: str | None
    timeout_s: float
    retries: int
    compress_above_bytes: int | None
    message_size_bytes_max: int
    trace: bool | str
    serializer: Serializer | None
    deserializer: Serializer | None
    middleware: Iterable[Middleware]
    tls: Tls
    credentials: CredentialsChoice
    connections: SharedConnections | None


class TransactionProducer(SyncSender[transactions.TransactionProducer]):
    """Sends messages in transactions; see rockhopper.TransactionProducer.

    `check` is a plain function; several threads may call it at once.
    """

    @show_options_of(transactions.TransactionProducer)
    def __init__(self, group: str, *, check: Check, **options: Unpack[TransactionOptions]) -> None:
        """See rockhopper.TransactionProducer. Raises TypeError for a `check` with `async def`."""
        plain = make_plain_function("check", check)

        async def checked(message: ReceivedMessage) -> TransactionState | str | None:
            return await asyncio.to_thread(plain, message)

        super().__init__(transactions.TransactionProducer, group, check=checked, **options)

    @contextmanager
    def transaction(
        self, message: Message, *, timeout_s: float | None = None
    ) -> Iterator[Transaction]:
        """Store a half message, run the block, then commit; if the block raises, ask `check`.

        Only `roll_back()` drops the message without a check.
        """
        context = self._opened().transaction(message, timeout_s=timeout_s)
        transaction = self._serving.call(context.__aenter__())
        try:
            yield transaction
        except BaseException as error:
            self._serving.call(context.__aexit__(type(error), error, error.__traceback__))
            raise
        self._serving.call(context.__aexit__(None, None, None))

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Transaction], TransactionState | str],
        *,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Store a half message, call `local`, and end the transaction with the state it returns.

        `local` runs in this thread. The outcome is left to `check` if `local` raises or returns
        anything but a state.
        """
        plain = make_plain_function("local transaction", local)
        with self.transaction(message, timeout_s=timeout_s) as transaction:
            transaction.state = read_state(plain(transaction), "the local transaction")
        return transaction
