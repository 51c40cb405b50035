"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320) in any serialization.

Also RECALL_MESSAGE (370): a producer recalls a timed message before its delivery.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.scheduled.timers.recall import TimerRecall
from rockhopper.broker.kernel.send.send_request import Send, waits_for_disk
from rockhopper.broker.kernel.send.sender import Placed, Sender
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    field_error_code,
    refusal_response,
    serves,
    store_error_response,
)
from rockhopper.broker.server.remoting.permissions import on_topic
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.live_settings import LiveSettings
from rockhopper.broker.store.files.errors import RecordTooLargeError, StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.properties import PROPERTY_REPLY_TO_CLIENT, decode_properties
from rockhopper.protocol.requests import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageRequestV2,
    encode_fields,
)

SENT = on_topic(Action.PUB, field="b")
_REPLY_CODES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


class _NotStoredError(RequestError):
    """The store accepts no messages now, or not this one."""


class StagedSend(NamedTuple):
    """A send whose message is staged."""

    request: Request
    send: Send
    placed: Placed


class SendProcessor:
    """Serves sends, with the parts that replies share."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        sender: Sender,
        listeners: Sequence[KernelListener],
    ) -> None:
        self._live_store = config.store.live
        self._store = store
        self._sender = sender
        self._listeners = listeners
        self._ext = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
        }

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code; a send is answered when the log is safe."""
        on_long_name = on_topic(Action.PUB)
        rows = {
            RequestCode.SEND_MESSAGE: serves(self.process, on_long_name, promises_state=False),
            RequestCode.SEND_MESSAGE_V2: serves(self.process, SENT, promises_state=False),
            RequestCode.SEND_BATCH_MESSAGE: serves(self.process, SENT, promises_state=False),
        }
        return {code: row._replace(together=self) for code, row in rows.items()}

    def process(self, request: Request) -> Response | None:
        """Serve one send; return None while the answer waits for the disk."""
        return self.write([self.stage(request)])[0]

    def stage(self, request: Request) -> "StagedSend":
        """Stage the message of a send, for ``write``. Raises RequestError."""
        try:
            send = send_of(request)
            return StagedSend(request, send, self._sender.stage(send))
        except FieldError as error:
            code, remark = field_error_code(error), str(error)
        except Refusal as error:
            code, remark = refusal_response(error).code, str(error)
        except StoreError as error:
            response = self._not_stored(error)
            raise _NotStoredError(response.code, response.remark or "", self.answer_ext()) from None
        raise RequestError(code, remark, self.answer_ext())

    def write(self, staged: Sequence["StagedSend"]) -> list[Response | None]:
        """Write staged messages with one call; return the answer to each, as ``process``."""
        safe_point = self._store.safe_point
        return [
            one.request.answer_when_safe(response, safe_point, end)
            for one, (response, end) in zip(staged, self._store_all(staged), strict=True)
        ]

    def store_message(self, request: Request) -> tuple[Response, int]:
        """Store one message.

        Return the answer and the log offset that must be safe before the answer may leave; 0 means
        at once. Raises RequestError, except if the store accepts nothing.
        """
        try:
            staged = self.stage(request)
        except _NotStoredError as error:
            return Response(error.code, error.remark, error.ext), 0
        return self._store_all([staged])[0]

    def _store_all(self, staged: Sequence["StagedSend"]) -> list[tuple[Response, int]]:
        end, error = self._sender.commit([one.placed for one in staged])
        answers = []
        for request, send, placed in staged:
            if error is not None and placed.log_offset >= end:
                response = self._not_stored(error)
                response.ext = self.answer_ext()
                answers.append((response, 0))
                continue
            if PROPERTY_REPLY_TO_CLIENT in send.properties and request.code not in _REPLY_CODES:
                self._report_request(request, send)
            answers.append((self._answer(placed), end if waits_for_disk(send.properties) else 0))
        return answers

    def _report_request(self, request: Request, send: Send) -> None:
        client_id = decode_properties(send.properties).get(PROPERTY_REPLY_TO_CLIENT)
        if client_id:
            for listener in self._listeners:
                listener.request_stored(
                    send.group,
                    client_id,
                    request.connection,
                    request.principal.user,
                    language=request.command.language,
                    version=request.command.version,
                )

    def answer_ext(self) -> dict[str, str]:
        """Return the fields of every answer; Java dereferences the map without a check."""
        return dict(self._ext)

    def _answer(self, placed: Placed) -> Response:
        ext = self.answer_ext()
        ext["msgId"] = placed.message_ids
        ext["queueId"] = str(placed.queue_id)
        ext["queueOffset"] = str(placed.queue_offset)
        if placed.transaction_id:
            ext["transactionId"] = placed.transaction_id
        if placed.recall_handle:
            ext["recallHandle"] = placed.recall_handle
        if placed.batch_unique_id:
            ext["batchUniqId"] = placed.batch_unique_id
        return Response(ResponseCode.SUCCESS, ext=ext)

    def _not_stored(self, error: StoreError) -> Response:
        if isinstance(error, RecordTooLargeError):
            return Response(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal, maybe msg body or properties length not matched. msg body "
                f"length limit {self._live_store.message_size_max_bytes}B, msg properties length "
                f"limit 32KB. {error}",
            )
        return store_error_response(error)


def send_of(request: Request) -> Send:
    """Return the message of a send or a reply, in either naming of its fields.

    Raises FieldError.
    """
    wire: type[SendMessageRequest] | type[SendMessageRequestV2] = SendMessageRequestV2
    if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        wire = SendMessageRequest
    fields = request.fields(wire)
    return Send(
        fields.producer_group,
        fields.topic,
        fields.default_topic,
        fields.default_topic_queue_nums,
        fields.queue_id,
        fields.sys_flag,
        fields.born_timestamp,
        fields.flag,
        fields.properties or "",
        fields.reconsume_times or 0,
        fields.max_reconsume_times,
        fields.batch or request.code == RequestCode.SEND_BATCH_MESSAGE,
        fields.unit_mode,
        request.body,
        request.connection.addresses.born_host,
        request.version,
        request.connection,
    )


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
