"""Checks the history of each broker's log, so that offsets survive a truncated log.

After a restart a broker's log can be shorter than before (a restored backup, a power failure). An
offset then belongs to another message, or to none yet. So the first use of a queue on a new
connection compares histories (LOG_HISTORY). The client sends the epochs in which it has read,
newest first. The broker returns the offset up to which its queue is still the one that was read,
and reading continues there.

    read up to 30 in epoch a; the connection breaks; the broker serves a backup that ends at 10
    compare: "I know a"  ->  "newest common epoch: a, it ends at 10"; the position becomes 10

A connection has one history: a broker that begins a new history closes its connections. Brokers
other than Rockhopper have no history; their offsets are used unchecked.
"""

from weakref import WeakKeyDictionary

from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import MalformedAnswerError
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies.log_history import (
    HistoryAnswer,
    HistoryQuestion,
    decode_history_answer,
    encode_history,
)
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import MalformedBodyError

_LOG_HISTORY = int(RequestCode.LOG_HISTORY)
_NONE = HistoryAnswer([], None, [])

Epochs = tuple[str, ...]
"""Ids of epochs of one log, newest first."""


class Histories:
    """The epochs in which the queues of one consumer were read."""

    def __init__(self, session: Session, group: str | None) -> None:
        self._session = session
        self._group = group
        self._offsets = QueueOffsets(session)
        self._read_in: dict[MessageQueue, Epochs] = {}
        self._compared: dict[MessageQueue, BrokerConnection] = {}
        self._epochs: WeakKeyDictionary[BrokerConnection, Epochs] = WeakKeyDictionary()

    def read_in(self, queue: MessageQueue) -> Epochs:
        """The epochs of the log in which a queue was last read; empty if unknown."""
        return self._read_in.get(queue, ())

    def recall(self, queue: MessageQueue, epochs: Epochs) -> None:
        """Set the epochs in which a queue was read, perhaps by an earlier process."""
        if epochs:
            self._read_in[queue] = epochs

    def is_compared(self, queue: MessageQueue, address: str) -> bool:
        """Whether a queue was compared on the current connection to its broker."""
        connection = self._session.connection(address)
        return connection is not None and self._compared.get(queue) is connection

    async def compare(self, queue: MessageQueue, offset: int, address: str) -> int:
        """Return where to continue: `offset`, or an earlier one if the log was truncated.

        Later reads belong to this history. Raises ClientError.
        """
        connection = await self._session.pool.connect(address)
        known = self._read_in.get(queue)
        if known is not None:
            answer = await self._ask(
                connection, HistoryQuestion(self._group, [*known], [_place(queue)])
            )
            offset = _limit(offset, answer)
            self._epochs[connection] = tuple(answer.ids)
        await self._note(queue, connection)
        self._compared[queue] = connection
        return offset

    async def record_history(self, queue: MessageQueue) -> None:
        """Record that a queue's position belongs to the history that its broker serves now.

        Raises ClientError.
        """
        address = await self._offsets.address(queue)
        await self._note(queue, await self._session.pool.connect(address))

    async def committable(self, queue: MessageQueue, offset: int) -> int:
        """Return the highest offset up to `offset` that agrees with the broker's log.

        Raises ClientError.
        """
        known = self._read_in.get(queue)
        if known is None:
            return offset
        address = await self._offsets.address(queue)
        if self.is_compared(queue, address):
            return offset
        connection = await self._session.pool.connect(address)
        answer = await self._ask(connection, HistoryQuestion(None, [*known], [_place(queue)]))
        return _limit(offset, answer)

    async def _note(self, queue: MessageQueue, connection: BrokerConnection) -> None:
        epochs = self._epochs.get(connection)
        if epochs is None:
            answer = await self._ask(connection, HistoryQuestion(None, [], []))
            epochs = self._epochs[connection] = tuple(answer.ids)
        if epochs:
            self._read_in[queue] = epochs
        else:
            self._read_in.pop(queue, None)

    async def _ask(self, connection: BrokerConnection, question: HistoryQuestion) -> HistoryAnswer:
        command = Command(_LOG_HISTORY, body=encode_history(question))
        answer = await connection.request(command, self._session.request_timeout_s)
        if answer.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION):
            return _NONE  # the following pull reports what is not allowed
        if answer.code != ResponseCode.SUCCESS:
            raise self._session.refusal(connection.address, _LOG_HISTORY, answer)
        try:
            return decode_history_answer(answer.body)
        except MalformedBodyError as error:
            raise MalformedAnswerError(
                f"{connection.address} answered LOG_HISTORY with an invalid body ({error})",
                address=connection.address,
            ) from error


def _place(queue: MessageQueue) -> tuple[str, int]:
    return queue.topic, queue.queue_id


def _limit(offset: int, answer: HistoryAnswer) -> int:
    end = answer.ends[0] if answer.ends else None
    return offset if end is None else min(offset, end)
