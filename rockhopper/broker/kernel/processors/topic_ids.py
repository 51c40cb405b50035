"""TOPIC_IDS (70007): ids that distinguish a topic from earlier or later ones of the same name."""

from dataclasses import dataclass

from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, serves
from rockhopper.broker.server.remoting.permissions import RequiredPermission
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import InvalidParameter
from rockhopper.protocol.bodies.topic_ids import decode_topics, encode_topic_ids
from rockhopper.protocol.codes import RequestCode as Code

TOPICS_MAX = 100_000

IDENTIFIED = RequiredPermission(
    (Action.SUB, Action.GET), ResourceKind.TOPIC, lambda request: decode_topics(request.body)
)
"""Requests of consumers such as the ends of queues: the right to pull covers them."""


@dataclass(eq=False, repr=False)
class TopicIdProcessor:
    """Serves the ids of topics."""

    _store: MessageStore
    _topics: TopicTable
    _topic_ids: TopicIds

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.TOPIC_IDS: serves(self.process, IDENTIFIED, promises_state=False),
        }

    async def process(self, request: Request) -> Response:
        """Return the id of each topic in the body, once it is on disk."""
        names = decode_topics(request.body)
        if len(names) > TOPICS_MAX:
            raise InvalidParameter(
                f"{len(names)} topics are requested: request at most {TOPICS_MAX} at a time"
            )
        log_end = self._store.log.written_offset
        found: list[str | None] = [
            self._topic_ids.get(name, log_end) if name in self._topics else None for name in names
        ]
        await self._topic_ids.saved()
        return Response(body=encode_topic_ids(found))
