"""TOPIC_IDS (70007): what tells topics from others of the same name, before or after them."""

from rockhopper.broker.processors.parts import BrokerParts
from rockhopper.broker.remoting.dispatcher import Request, RequestError, Response
from rockhopper.protocol.bodies.topic_ids import decode_topics, encode_topic_ids
from rockhopper.protocol.codes import ResponseCode

TOPICS_MAX = 100_000


class TopicIdProcessor:
    """Serves the ids of topics."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker

    async def process(self, request: Request) -> Response:
        """Answer the id of each topic of the body, once it is on disk."""
        names = decode_topics(request.body)
        if len(names) > TOPICS_MAX:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(names)} topics are asked for: ask for {TOPICS_MAX} at a time",
            )
        broker = self._broker
        log_end = broker.store.max_commit_log_offset
        found: list[str | None] = [
            broker.topic_ids.get(name, log_end) if name in broker.topics else None for name in names
        ]
        await broker.topic_ids.saved()
        return Response(body=encode_topic_ids(found))
