"""SEND_REPLY_MESSAGE (324, 325): the reply to a message that was sent as a request.

A requester adds its client id and a correlation id to its message and waits. The consumer of the
message sends the reply here. The broker pushes it (326) over the connection of the client's last
producer heartbeat. If there was no heartbeat yet, the request itself counts as one, for example for
a Go producer in its first second. Plain messages on the fast path are not examined: clients that
write those send a heartbeat before their first request. With storeReplyMessageEnable the reply is
also stored in ``<cluster>_REPLY_TOPIC``. The replier learns whether the push arrived.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.processors.clients import CLIENT_ID_LENGTH_MAX
from rockhopper.broker.kernel.processors.sends import SendProcessor, send_of
from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.kernel.send.sender import Sender
from rockhopper.broker.server.remoting.connection import connection_of
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    Response,
    Row,
    choose_unconfirmed_code,
    serves,
    store_error_response,
)
from rockhopper.broker.server.remoting.permissions import on_topic
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.log.encoding import drop_own_properties
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import IllegalMessage
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.names import is_producer_group
from rockhopper.protocol.properties import (
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    decode_properties,
    join_properties,
)
from rockhopper.protocol.requests import ReplyMessageRequest, encode_fields

log = structlog.get_logger("broker.replies")

PUSH_TIMEOUT_S = 10.0
NAME_LENGTH_SHOWN = 200
# If a reply cannot be stored for these reasons, it is still pushed, because the requester waits.
_STORE_TROUBLES = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY)


@dataclass(eq=False, repr=False)
class ReplyProcessor(KernelListener):
    """Serves replies."""

    _config: BrokerConfig
    _store: MessageStore
    _producers: ProducerTable
    _sender: Sender
    _sends: SendProcessor
    _now_ms: Callable[[], int]

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: serves(self.process, on_topic(Action.PUB)),
            RequestCode.SEND_REPLY_MESSAGE_V2: serves(
                self.process, on_topic(Action.PUB, field="b")
            ),
        }

    def request_stored(
        self, group: str, client_id: str, sender: Peer, user: str, *, language: int, version: int
    ) -> None:
        """Register the sender of a request as with a heartbeat, unless that client is known."""
        if (
            len(client_id) <= CLIENT_ID_LENGTH_MAX
            and not self._producers.find(client_id)
            and is_producer_group(group)
        ):
            self._producers.register(group, Client(sender, client_id, language, version, user))

    async def process(self, request: Request) -> Response:
        """324, 325: store the reply and push it to the requester."""
        send = send_of(request)
        if send.is_batch:
            raise IllegalMessage("a batch cannot be a reply")
        response = await self._answer_stored(request, send)
        if response.code not in (ResponseCode.SUCCESS, *_STORE_TROUBLES):
            return response
        problem = await self._push(request, send)
        if problem is not None:
            response.code, response.remark = ResponseCode.SYSTEM_ERROR, problem
        elif response.code in _STORE_TROUBLES:
            log.warning("a reply was pushed but not stored", reason=response.remark)
            response = self._answer_unstored(send)
        return response

    async def _answer_stored(self, request: Request, send: Send) -> Response:
        if not self._config.live.store_reply_messages:
            self._sender.check(send)
            return self._answer_unstored(send)
        try:
            response, end = self._sends.store_message(request)
        except StoreError as error:
            return store_error_response(error)
        try:
            await self._store.safe_point.wait(end)
        except StoreError as error:
            response.code, response.remark = choose_unconfirmed_code(error), str(error)
        return response

    def _answer_unstored(self, send: Send) -> Response:
        """Return the answer for a reply that was pushed but not stored."""
        ext = self._sends.answer_ext()
        return Response(ext=ext | {"msgId": "0", "queueId": str(send.queue_id), "queueOffset": "0"})

    async def _push(self, request: Request, send: Send) -> str | None:
        """Push the reply to the requester; return the reason as a sentence if that failed."""
        properties = drop_own_properties(decode_properties(send.properties))
        client_id = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if not client_id:
            return (
                f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null: only a message "
                "that was sent as a request can have a reply"
            )
        shown = client_id[:NAME_LENGTH_SHOWN]
        client = self._producers.find(client_id)
        if client is None:
            return (
                f"push reply message fail, channel of <{shown}> not found. The requester is not "
                "connected to this broker, or has sent it no producer heartbeat"
            )
        now_ms = self._now_ms()
        properties[PROPERTY_PUSH_REPLY_TIME] = str(now_ms)
        connection = request.connection
        fields = ReplyMessageRequest(
            producer_group=send.group,
            topic=send.topic,
            default_topic=send.default_topic,
            default_topic_queue_nums=send.default_queue_nums,
            queue_id=send.queue_id,
            sys_flag=send.sys_flag,
            born_timestamp=send.born_time_ms,
            flag=send.flag,
            properties=join_properties(properties),
            reconsume_times=send.reconsume_times,
            born_host=connection.peer,
            store_host=connection.addresses.local,
            store_timestamp=now_ms,
        )
        asker = connection_of(client.connection)
        if asker is None:
            return f"push reply message to {shown} fail: its client accepts no replies"
        try:
            answer = await asker.call(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                encode_fields(fields),
                request.body,
                PUSH_TIMEOUT_S,
            )
        except TimeoutError:
            return f"push reply message to {shown} fail: no answer within {PUSH_TIMEOUT_S:.0f} s"
        except ConnectionResetError as error:
            return f"push reply message to {shown} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {shown} fail: {answer.remark or f'code {answer.code}'}"
        return None
