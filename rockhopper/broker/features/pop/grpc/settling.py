"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

import re
from typing import Any, NamedTuple

from rockhopper.broker.features.pop.grpc.handles import Handles, HeldMessage
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
_ACKED_NONE: bytes = _AckReply(status=OK).SerializeToString()
_ACKED: bytes = _AckReply(status=OK, entries=[{"status": OK}]).SerializeToString()
"""The reply to one acknowledgement, without the id and the handle."""
_OK_CODE = int(Code.OK)
_ChangeReply = METHODS["ChangeInvisibleDuration"].reply
_ForwardReply = METHODS["ForwardMessageToDeadLetterQueue"].reply


class Settling:
    """Serves consumers that settle received messages."""

    def __init__(self, store: MessageStore, handles: Handles, send_back: SendBack) -> None:
        self._store = store
        self._handles = handles
        self._send_back = send_back
        self._owed_acks: list[_OwedAcks] = []

    def ack(self, call: Call, request: Any) -> None:
        """AckMessage: acknowledge messages; each has its own status.

        ``settle_acks`` does it for all calls of a turn, and replies.
        """
        _ = call.client_id
        topic, group = topic_of(request.topic), group_of(request.group)
        entries = request.entries
        # Protobuf parses faster than it builds.
        reply = _AckReply.FromString(_ACKED if len(entries) == 1 else _ACKED_NONE)
        acks = []
        for entry in entries:
            told = reply.entries[0] if len(entries) == 1 else reply.entries.add(status=OK)
            handle = entry.receipt_handle
            told.message_id, told.receipt_handle = entry.message_id, handle
            try:
                acks.append((told, self._handles.settle(handle, group, topic)))
            except Exception as error:
                told.status.CopyFrom(status_of(error))
        self._owed_acks.append(_OwedAcks(call, reply, acks))

    def settle_acks(self) -> None:
        """Acknowledge the messages of all calls that wait, with one write, and reply."""
        if not self._owed_acks:
            return
        owed, self._owed_acks = self._owed_acks, []
        acks = [ack for each in owed for ack in each.acks]
        errors = self._handles.ack([meant for _, meant in acks])
        for (told, _), error in zip(acks, errors, strict=True):
            if error is not None:
                told.status.CopyFrom(status_of(error))
        for call, reply, _ in owed:
            _sum_up(reply)
            call.reply(reply)

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
            (failure,) = self._handles.ack([meant])
            if failure is not None and not isinstance(failure, Refusal):
                raise failure
            call.reply(_ForwardReply(status=OK))

        if end_offset <= self._store.safe_point.high_watermark:
            release(None)
        else:
            self._store.safe_point.when(end_offset, release)
        return None


class _OwedAcks(NamedTuple):
    """A call that receives its reply once its messages are acknowledged."""

    call: Call
    reply: Any
    acks: list[tuple[Any, HeldMessage]]
    """Entries of the reply, and the messages that are acknowledged."""


def _sum_up(reply: Any) -> None:
    """Set the status of a reply: the common one of all entries, or that they differ."""
    entries = reply.entries
    if len(entries) > 1 and len({entry.status.code for entry in entries}) > 1:
        reply.status.CopyFrom(status(Code.MULTIPLE_RESULTS, "see the entries"))
    elif entries and entries[0].status.code != _OK_CODE:
        reply.status.CopyFrom(entries[0].status)


def _parse_identity(message_id: str) -> Identity:
    """Return the identity in a message id.

    RocketMQ's proxy accepts any text that is not an id.
    """
    return Identity(message_id) if _MESSAGE_ID.fullmatch(message_id) else ANY_MESSAGE
