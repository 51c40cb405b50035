"""END_TRANSACTION (37), and RESUME_CHECK_HALF_MESSAGE (323) after a message's checks ended."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rockhopper.broker.features.transactions.ends import TransactionEnds
from rockhopper.broker.features.transactions.ledger import Ledger
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    Response,
    Row,
    administers,
    serves,
)
from rockhopper.broker.server.remoting.permissions import (
    ExaminedRequest,
    RequiredPermission,
    on_topic,
)
from rockhopper.broker.store.files.errors import (
    NotReplicatedError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.names import TRANSACTION_CHECK_MAX_TIME_TOPIC
from rockhopper.protocol.properties import PROPERTY_REAL_TOPIC
from rockhopper.protocol.requests import EndTransactionRequest, ResumeCheckHalfMessageRequest
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_TRANSACTION_COMMIT,
    SYS_FLAG_TRANSACTION_NONE,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)

ENDS = (SYS_FLAG_TRANSACTION_COMMIT, SYS_FLAG_TRANSACTION_ROLLBACK)
_OFFSET_DIGITS_MAX = 19


@dataclass(eq=False, repr=False)
class TransactionProcessors:
    """Serves producers that end a transaction, and operators."""

    _store: MessageStore
    _ledger: Ledger
    _ends: TransactionEnds
    _resume: Callable[[StoredMessage], int]

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            RequestCode.END_TRANSACTION: serves(
                self.end_transaction,
                RequiredPermission((Action.PUB,), ResourceKind.TOPIC, self.topics_of_end),
            ),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: administers(
                self.resume, on_topic(Action.UPDATE)
            ),
        }

    def topics_of_end(self, request: ExaminedRequest) -> Iterable[str]:
        """Return the topics of a transaction's end: the one it names, and that of its half message.

        Clients before 5.0 name no topic, and a client that names one may refer to another topic's
        half message.
        """
        offset = request.ext.get("commitLogOffset", "")
        is_offset = offset.isdecimal() and len(offset) <= _OFFSET_DIGITS_MAX
        half = self._ledger.half_at(int(offset)) if is_offset else None
        real = "" if half is None else half.properties.get(PROPERTY_REAL_TOPIC, "")
        return {request.ext.get("topic", ""), real} - {""} or {""}

    def end_transaction(self, request: Request) -> Response | None:
        """37: commit or roll back. An undecided producer receives no answer, as in RocketMQ."""
        fields = request.fields(EndTransactionRequest)
        if fields.commit_or_rollback == SYS_FLAG_TRANSACTION_NONE:
            return None
        if fields.commit_or_rollback not in ENDS:
            raise Refusal(
                f"commitOrRollback field wrong: it is {fields.commit_or_rollback}, not 8 "
                "(commit), 12 (roll back) or 0 (not known)"
            )
        is_commit = fields.commit_or_rollback == SYS_FLAG_TRANSACTION_COMMIT
        return self._answer(request, self._ends.end_transaction(fields, commit=is_commit))

    def resume(self, request: Request) -> Response | None:
        """323: restart the checks of a message in TRANS_CHECK_MAX_TIME_TOPIC, by its offset id."""
        fields = request.fields(ResumeCheckHalfMessageRequest)
        store = self._store
        _, _, log_offset = decode_offset_message_id(fields.msg_id or "")
        record = b""
        if store.log.min_offset <= log_offset < store.log.written_offset:
            record = store.reading.reader.record(log_offset)
        message = decode_message(record) if record else None
        if message is None or message.topic != TRANSACTION_CHECK_MAX_TIME_TOPIC:
            raise Refusal(
                f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {fields.msg_id} is not a "
                f"message of {TRANSACTION_CHECK_MAX_TIME_TOPIC}: give the offset id of one"
            )
        return self._answer(request, self._resume(message))

    def _answer(self, request: Request, end_offset: int) -> Response | None:
        return request.answer_when_safe(Response(), self._store.safe_point, end_offset, _get_code)


def _get_code(error: StoreError) -> int:
    if isinstance(error, (StoreFailedError, NotReplicatedError)):
        # Another replica may lead without this message; it then checks the half message.
        return ResponseCode.SERVICE_NOT_AVAILABLE
    # The message is stored but perhaps not on disk: RocketMQ reports success.
    return ResponseCode.SUCCESS
