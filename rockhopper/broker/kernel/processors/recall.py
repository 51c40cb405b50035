"""RECALL_MESSAGE (370): a producer recalls a timed message before its delivery."""

from collections.abc import Callable
from dataclasses import dataclass

from rockhopper.broker.kernel.scheduled.timers.recall import TimerRecall
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    serves,
    store_error_response,
)
from rockhopper.broker.server.remoting.permissions import on_topic
from rockhopper.broker.settings.live_settings import LiveSettings
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.requests import RecallMessageRequest, RecallMessageResponse, encode_fields


@dataclass(eq=False, repr=False)
class RecallProcessor:
    """Serves recalls."""

    _live: LiveSettings
    _store: MessageStore
    _timer_recall: TimerRecall
    _now_ms: Callable[[], int]

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.RECALL_MESSAGE: serves(self.process, on_topic(Action.PUB)),
        }

    def process(self, request: Request) -> Response | None:
        """370: recall the message of a handle."""
        fields = request.fields(RecallMessageRequest)
        if self._live.accept_send_from_ms > self._now_ms():
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "the broker does not accept requests yet"
            )
        recalled = self._timer_recall.recall(
            fields.topic, fields.recall_handle, request.connection.addresses.born_host
        )
        response = Response(ext=encode_fields(RecallMessageResponse(msg_id=recalled.unique_key)))
        return request.answer_when_safe(
            response, self._store.safe_point, recalled.end_offset, _get_code
        )


def _get_code(error: StoreError) -> int:
    return store_error_response(error).code
