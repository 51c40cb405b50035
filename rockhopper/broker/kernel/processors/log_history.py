"""LOG_HISTORY (70020): up to where a reader's positions belong to the present log."""

from dataclasses import dataclass

from rockhopper.broker.kernel.pull.reader_positions import ReaderPositions
from rockhopper.broker.kernel.tables.log_history import LogHistory
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, serves
from rockhopper.broker.server.remoting.permissions import RequiredPermission
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import InvalidParameter
from rockhopper.protocol.bodies.log_history import (
    IDS_MAX,
    QUEUES_MAX,
    HistoryAnswer,
    decode_history_question,
    encode_history,
)
from rockhopper.protocol.codes import RequestCode as Code

# Each queue takes some twenty lookups.
_QUEUES_PER_TURN = 64

COMPARED = RequiredPermission(
    (Action.SUB,),
    ResourceKind.TOPIC,
    lambda request: {topic for topic, _ in decode_history_question(request.body).queues},
)


@dataclass(eq=False, repr=False)
class LogHistoryProcessor:
    """Serves the history of the log."""

    _store: MessageStore
    _history: LogHistory
    _positions: ReaderPositions

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.LOG_HISTORY: serves(self.process, COMPARED, promises_state=False),
        }

    async def process(self, request: Request) -> Response:
        """Return the newest epochs, once they are on disk, and the ends of the queues.

        Afterwards the reader's commits are accepted unchecked, because it has compared its
        positions.
        """
        question = decode_history_question(request.body)
        if len(question.known_ids) > IDS_MAX or len(question.queues) > QUEUES_MAX:
            raise InvalidParameter(
                f"{len(question.known_ids)} epochs and {len(question.queues)} queues; at most "
                f"{IDS_MAX} and {QUEUES_MAX} are allowed: send several requests"
            )
        past = self._history.compare(question.known_ids)
        ends: list[int | None] = []
        for number, (topic, queue_id) in enumerate(question.queues):
            if number % _QUEUES_PER_TURN == _QUEUES_PER_TURN - 1:
                await next_slice()
            ends.append(
                None
                if past.end_offset is None
                else self._store.reading.queue_end_at(topic, queue_id, past.end_offset)
            )
            if question.group is not None:
                self._positions.claim(request.connection, question.group, topic, queue_id)
        await self._history.saved()
        answer = HistoryAnswer(self._history.ids(IDS_MAX), past.id, ends)
        return Response(body=encode_history(answer))
