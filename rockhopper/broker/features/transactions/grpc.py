"""EndTransaction, for RocketMQ 5 clients."""

from collections.abc import Mapping
from typing import Any

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.features.transactions.ends import TransactionEnds
from rockhopper.broker.features.transactions.ledger import Ledger
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.call import Call, reply_when_safe
from rockhopper.broker.gateways.grpc.resources import sendable_topic_of
from rockhopper.broker.gateways.grpc.statuses import OK, GrpcStatusError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import (
    METHODS,
    RESOLUTION_COMMIT,
    RESOLUTION_ROLLBACK,
    SOURCE_SERVER_CHECK,
)
from rockhopper.protocol.grpc_v2.transaction_id import parse_transaction_id
from rockhopper.protocol.properties import PROPERTY_REAL_TOPIC
from rockhopper.protocol.requests import EndTransactionRequest
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_TRANSACTION_COMMIT,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)

_EndReply = METHODS["EndTransaction"].reply


class TransactionGrpc:
    """Serves producers that end a transaction."""

    def __init__(self, store: MessageStore, ledger: Ledger, ends: TransactionEnds) -> None:
        self._store = store
        self._ledger = ledger
        self._ends = ends
        self.rpcs: Mapping[str, RpcRow] = {
            "EndTransaction": RpcRow(self.end_transaction, permissions.of_producing)
        }

    def settle(self) -> None:
        """Do nothing: no call is gathered."""

    def close(self) -> None:
        """Do nothing: no call waits for this object."""

    def end_transaction(self, call: Call, request: Any) -> Any:
        """EndTransaction."""
        _ = call.client_id
        topic = sendable_topic_of(request.topic)
        if not request.transaction_id.strip():
            raise GrpcStatusError(Code.INVALID_TRANSACTION_ID, "the transaction id is blank")
        try:
            transaction = parse_transaction_id(request.transaction_id)
        except ValueError as error:
            raise GrpcStatusError(Code.INVALID_TRANSACTION_ID, str(error)) from None
        half = self._ledger.half_at(transaction.log_offset)
        if half is not None and half.properties.get(PROPERTY_REAL_TOPIC) != topic:
            # Permission to publish to one topic must not end a transaction of another.
            raise GrpcStatusError(
                Code.INVALID_TRANSACTION_ID, f"the transaction does not belong to topic {topic}"
            )
        if request.resolution not in (RESOLUTION_COMMIT, RESOLUTION_ROLLBACK):
            # An undecided producer is asked again later.
            return _EndReply(status=OK)
        is_commit = request.resolution == RESOLUTION_COMMIT
        ended = EndTransactionRequest(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=transaction.half_offset,
            commit_log_offset=transaction.log_offset,
            commit_or_rollback=(
                SYS_FLAG_TRANSACTION_COMMIT if is_commit else SYS_FLAG_TRANSACTION_ROLLBACK
            ),
            from_transaction_check=request.source == SOURCE_SERVER_CHECK,
            msg_id=request.message_id,
            transaction_id=transaction.unique_key,
        )
        end_offset = self._ends.end_transaction(ended, commit=is_commit)
        return reply_when_safe(self._store, call, _EndReply(status=OK), end_offset)
