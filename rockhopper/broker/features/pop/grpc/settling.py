"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

import contextlib
import re
from typing import Any

from rockhopper.broker.features.pop.grpc.handles import Handles
from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.resources import group_of, topic_of
from rockhopper.broker.gateways.grpc.statuses import (
    OK,
    GrpcStatusError,
    build_unconfirmed_status,
    millis_of,
    status,
    status_of,
)
from rockhopper.broker.kernel.send.record_access import ANY_MESSAGE, Identity
from rockhopper.broker.kernel.send.send_back import SendBack
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS

INVISIBLE_MS_MAX = 12 * 3_600_000
TO_THE_DEAD_LETTERS = -1

# The UNIQ_KEY of a RocketMQ 5 client ("01", then 32 digits) or of a RocketMQ 4 client.
_MESSAGE_ID = re.compile(r"(01)?[0-9A-Fa-f]{32}")

_AckReply = METHODS["AckMessage"].reply
_ChangeReply = METHODS["ChangeInvisibleDuration"].reply
_ForwardReply = METHODS["ForwardMessageToDeadLetterQueue"].reply


class Settling:
    """Serves consumers that settle received messages."""

    def __init__(self, store: MessageStore, handles: Handles, send_back: SendBack) -> None:
        self._store = store
        self._handles = handles
        self._send_back = send_back

    def ack(self, call: Call, request: Any) -> Any:
        """AckMessage: acknowledge messages; each has its own status."""
        _ = call.client_id
        topic, group = topic_of(request.topic), group_of(request.group)
        reply = _AckReply(status=OK)
        codes = set()
        for entry in request.entries:
            told = reply.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle
            )
            try:
                self._handles.ack(self._handles.settle(entry.receipt_handle, group, topic))
            except Exception as error:
                told.status.CopyFrom(status_of(error))
            else:
                told.status.CopyFrom(OK)
            codes.add(told.status.code)
        if len(codes) > 1:
            reply.status.CopyFrom(status(Code.MULTIPLE_RESULTS, "see the entries"))
        elif reply.entries:
            reply.status.CopyFrom(reply.entries[0].status)
        return reply

    def change(self, call: Call, request: Any) -> Any:
        """ChangeInvisibleDuration: change when a message becomes visible again."""
        _ = call.client_id
        topic, group = topic_of(request.topic), group_of(request.group)
        invisible_ms = millis_of(
            request.invisible_duration, Code.ILLEGAL_INVISIBLE_TIME, "the invisible time"
        )
        if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
            raise GrpcStatusError(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"invisible for {invisible_ms} ms; 0 to {INVISIBLE_MS_MAX} are allowed",
            )
        meant = self._handles.settle(request.receipt_handle, group, topic)
        handle = self._handles.change(meant, invisible_ms, suspend=request.suspend)
        if handle is None:
            raise GrpcStatusError(
                Code.INVALID_RECEIPT_HANDLE,
                "this handle matches no message in flight: the message was acknowledged, or has "
                "a newer handle",
            )
        return _ChangeReply(status=OK, receipt_handle=str(handle))

    def forward(self, call: Call, request: Any) -> Any:
        """ForwardMessageToDeadLetterQueue: give up a message, so that its consumer can continue.

        Works even after its handle has expired, as in RocketMQ: consumers in order repeat this
        until it succeeds.
        """
        _ = call.client_id
        topic, group = topic_of(request.topic), group_of(request.group)
        meant = self._handles.settle(request.receipt_handle, group, topic, may_be_late=True)
        if meant.handle.log_offset < 0:
            raise GrpcStatusError(
                Code.INVALID_RECEIPT_HANDLE, "the handle does not identify a message"
            )
        end_offset = self._send_back.store_again(
            group,
            meant.handle.log_offset,
            TO_THE_DEAD_LETTERS,
            of_topics=(topic, meant.topic),
            meant=_parse_identity(request.message_id),
        )

        def release(error: StoreError | None) -> None:
            if error is not None:
                call.reply(_ForwardReply(status=build_unconfirmed_status(error)))
                return
            # A message that has become visible meanwhile is delivered again, besides the dead
            # letter.
            with contextlib.suppress(Refusal):
                self._handles.ack(meant)
            call.reply(_ForwardReply(status=OK))

        if end_offset <= self._store.safe_point.high_watermark:
            release(None)
        else:
            self._store.safe_point.when(end_offset, release)
        return None


def _parse_identity(message_id: str) -> Identity:
    """Return the identity in a message id.

    RocketMQ's proxy accepts any text that is not an id.
    """
    return Identity(message_id) if _MESSAGE_ID.fullmatch(message_id) else ANY_MESSAGE
