"""RECALL_MESSAGE (370): a producer wants a timer message back before it is delivered.

RocketMQ answers success when it has stored a marker, whatever becomes of the message. Here success
means that the message will not be delivered, and a message that is not pending any more is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rockhopper.broker.access.errors import IllegalOperation, NoPermission, TopicNotFound
from rockhopper.broker.later.timers.recall_handle import RecallHandle, decode_recall_handle
from rockhopper.broker.later.timers.timers import Timers
from rockhopper.broker.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    store_error_response,
)
from rockhopper.broker.remoting.safe_answers import answer_when_safe
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tables.topics import TopicTable
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.requests import RecallMessageRequest, RecallMessageResponse, encode_fields


@dataclass(eq=False, repr=False)
class RecallProcessor:
    """Serves recalls."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _timers: Timers
    _now_ms: Callable[[], int]

    def process(self, request: Request) -> Response | None:
        """370: withdraw the message that the handle means."""
        fields = request.fields(RecallMessageRequest)
        config = self._config
        if not config.live.recall_message_enable:
            raise NoPermission(
                "recall failed, operation is forbidden: recallMessageEnable is false"
            )
        if config.live.accept_send_from_ms > self._now_ms():
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "the broker does not accept requests yet"
            )
        if fields.topic not in self._topics:
            raise TopicNotFound(f"recall failed, the topic[{fields.topic[:200]}] not exist")
        handle = self._handle(fields)
        end = self._timers.recall(handle, request.connection.born_host)
        if end is None:
            raise _refused("the message is not pending: it was delivered or recalled before")
        response = Response(ext=encode_fields(RecallMessageResponse(msg_id=handle.unique_key)))
        return answer_when_safe(self._store, request, response, end, _unconfirmed)

    def _handle(self, fields: RecallMessageRequest) -> RecallHandle:
        try:
            handle = decode_recall_handle(fields.recall_handle)
        except ValueError as error:
            raise _refused(f"the handle is wrong: {error}") from None
        config = self._config
        if handle.topic != fields.topic:
            raise _refused(f"the handle is for topic {handle.topic[:200]}")
        if handle.broker_name != config.broker_name:
            raise _refused(
                f"the handle is for broker {handle.broker_name[:200]}, and this is "
                f"{config.broker_name}"
            )
        return handle


def _unconfirmed(error: StoreError) -> int:
    return store_error_response(error).code


def _refused(reason: str) -> IllegalOperation:
    return IllegalOperation(f"recall failed, {reason}")
