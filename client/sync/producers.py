"""Producer and TransactionProducer without `await`."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rockhopper.client import producer, transactions
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sync.face import Face, made_like, waits
from rockhopper.client.sync.loop_thread import loop_thread
from rockhopper.client.transactions import Transaction, TransactionState
from rockhopper.protocol.message import Message

_Producer = TypeVar("_Producer", bound=producer.Producer)

Check = Callable[[ReceivedMessage], TransactionState | str | None]


class Sending(Face[_Producer]):
    """What both producers do; a forked child gets connections of its own by its first call."""

    _reopens_in_child = True

    send = waits(producer.Producer.send)
    send_batch = waits(producer.Producer.send_batch)
    send_oneway = waits(producer.Producer.send_oneway)
    request = waits(producer.Producer.request)
    reply = waits(producer.Producer.reply)
    recall = waits(producer.Producer.recall)
    queues = waits(producer.Producer.queues)


class Producer(Sending[producer.Producer]):
    """Sends messages, from any thread; see rockhopper.Producer.

    Made once for a process, also before it forks: each child gets connections of its own.
    """

    @made_like(producer.Producer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(producer.Producer, *args, **kwargs)


class TransactionProducer(Sending[transactions.TransactionProducer]):
    """Sends messages in transactions; see rockhopper.TransactionProducer.

    `check` is a plain function, called in a thread.
    """

    def __init__(
        self,
        group: str,
        *,
        check: Check,
        nameserver: str | None = None,
        timeout_s: float = 3.0,
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """See rockhopper.TransactionProducer."""

        async def checked(message: ReceivedMessage) -> TransactionState | str | None:
            return await asyncio.to_thread(check, message)

        super().__init__(
            transactions.TransactionProducer,
            group,
            check=checked,
            nameserver=nameserver,
            timeout_s=timeout_s,
            tls=tls,
            credentials=credentials,
            connections=connections,
        )

    @contextmanager
    def transaction(
        self, message: Message, *, timeout_s: float | None = None
    ) -> Iterator[Transaction]:
        """Store a half message, run the block, then commit, or roll back if the block raised."""
        context = self._opened().transaction(message, timeout_s=timeout_s)
        transaction = loop_thread().call(context.__aenter__())
        try:
            yield transaction
        except BaseException as error:
            loop_thread().call(context.__aexit__(type(error), error, error.__traceback__))
            raise
        loop_thread().call(context.__aexit__(None, None, None))
