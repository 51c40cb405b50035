"""Notifications to peers, as remoting's oneway requests."""

from rockhopper.broker.users.peer import ConsumersChanged, Notice, TransactionCheck
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.properties import PROPERTY_UNIQUE_KEY
from rockhopper.protocol.requests import CheckTransactionStateRequest, encode_fields
from rockhopper.protocol.store.message_codec import encode_stored_message


def request_of(notice: Notice) -> tuple[RequestCode, dict[str, str], bytes]:
    """Return code, header fields and body."""
    match notice:
        case ConsumersChanged(group):
            return RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, b""
        case TransactionCheck(half, message, broker_name):
            unique_key = half.properties.get(PROPERTY_UNIQUE_KEY)
            fields = CheckTransactionStateRequest(
                topic=half.topic,
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.commit_log_offset,
                msg_id=unique_key,
                transaction_id=unique_key,
                offset_msg_id=half.offset_message_id,
                broker_name=broker_name,
            )
            return (
                RequestCode.CHECK_TRANSACTION_STATE,
                encode_fields(fields),
                encode_stored_message(message),
            )
