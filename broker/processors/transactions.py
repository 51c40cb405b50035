"""END_TRANSACTION (37), and RESUME_CHECK_HALF_MESSAGE (323) for what is held."""

from broker.dispatcher import Request, RequestError, Response
from broker.processors.parts import BrokerParts
from broker.store.errors import StoreError, StoreFailedError
from protocol.codes import ResponseCode
from protocol.message_codec import decode_message
from protocol.message_ids import decode_offset_message_id
from protocol.names import TRANSACTION_CHECK_MAX_TIME_TOPIC
from protocol.requests import EndTransactionRequest, ResumeCheckHalfMessageRequest
from protocol.sys_flags import SYS_FLAG_TRANSACTION_COMMIT, SYS_FLAG_TRANSACTION_ROLLBACK

ENDS = (SYS_FLAG_TRANSACTION_COMMIT, SYS_FLAG_TRANSACTION_ROLLBACK)


class TransactionProcessors:
    """Serves producers that say how a transaction ended, and operators."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker

    def end(self, request: Request) -> Response | None:
        """37: commit or roll back.  Who does not know yet is not answered, as in RocketMQ."""
        fields = request.fields(EndTransactionRequest)
        if fields.commit_or_rollback not in ENDS:
            return None
        is_commit = fields.commit_or_rollback == SYS_FLAG_TRANSACTION_COMMIT
        return self._answer(request, self._broker.transactions.ends.end(fields, commit=is_commit))

    def resume(self, request: Request) -> Response | None:
        """323: ask again about a message of TRANS_CHECK_MAX_TIME_TOPIC, by its offset id."""
        fields = request.fields(ResumeCheckHalfMessageRequest)
        store = self._broker.store
        _, _, position = decode_offset_message_id(fields.msg_id or "")
        record = b""
        if store.min_commit_log_offset <= position < store.max_commit_log_offset:
            record = store.message_at(position)
        message = decode_message(record) if record else None
        if message is None or message.topic != TRANSACTION_CHECK_MAX_TIME_TOPIC:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {fields.msg_id} is no "
                f"message of {TRANSACTION_CHECK_MAX_TIME_TOPIC}: give the offset id of one",
            )
        return self._answer(request, self._broker.transactions.resume(message))

    def _answer(self, request: Request, end_offset: int) -> Response | None:
        """Success, under SYNC_FLUSH once the disk has it."""
        store = self._broker.store
        if not store.is_sync or end_offset <= store.flushed_offset:
            return Response()

        def release(error: StoreError | None) -> None:
            if isinstance(error, StoreFailedError):
                request.answer(Response(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)))
            else:
                # Stored, if not known to be on disk: RocketMQ calls that a success.
                request.answer(Response(remark=None if error is None else str(error)))

        store.park(end_offset, release)
        return None
