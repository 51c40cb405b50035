"""CONSUMER_SEND_MSG_BACK (36): a consumer failed to process a message."""

from dataclasses import dataclass

from rockhopper.broker.kernel.send.record_access import Identity
from rockhopper.broker.kernel.send.send_back import SendBack
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, serves
from rockhopper.broker.server.remoting.permissions import on_group, on_topic
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.names import retry_topic
from rockhopper.protocol.requests import ConsumerSendMsgBackRequest

# V3_4_9: older clients send a maximum that must be ignored.
VERSION_WITH_MAX_RECONSUME_TIMES = 121

SENT_BACK = (
    on_group(Action.SUB, field="group"),
    on_topic(Action.SUB, field="originTopic"),
)
"""The message that comes back is copied for the group, so its topic must be readable, too."""


@dataclass(eq=False, repr=False)
class SendBackProcessor:
    """Serves requests to redeliver a message."""

    _store: MessageStore
    _send_back: SendBack

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.CONSUMER_SEND_MSG_BACK: serves(self.process, *SENT_BACK),
        }

    def process(self, request: Request) -> Response | None:
        """36: store the message again, for later delivery or as a dead letter."""
        fields = request.fields(ConsumerSendMsgBackRequest)
        times_max = fields.max_reconsume_times
        if request.version < VERSION_WITH_MAX_RECONSUME_TIMES:
            times_max = None
        of_topics = None
        if request.principal.user:
            # It comes from the topic for which the sender was authorized, or was redelivered
            # before.
            of_topics = (request.ext.get("originTopic", ""), retry_topic(fields.group))
        end = self._send_back.store_again(
            fields.group,
            fields.offset,
            fields.delay_level,
            times_max=times_max,
            unit_mode=fields.unit_mode,
            of_topics=of_topics,
            meant=Identity(fields.origin_msg_id or "", fields.store_timestamp),
        )
        return request.answer_when_safe(Response(), self._store.safe_point, end)
