"""HalfSends: stores half messages where no consumer reads them, until their transactions end."""

from typing import Any

from rockhopper.broker.features.transactions.half_messages import (
    HALF_QUEUE_ID,
    immunity_ms,
    is_half,
    make_half,
)
from rockhopper.broker.features.transactions.transactions import Transactions
from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.kernel.send.sender import Diversion
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.errors import IllegalMessage, NoPermission
from rockhopper.protocol.grpc_v2.transaction_id import TransactionId
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from rockhopper.protocol.properties import PROPERTY_PRODUCER_GROUP


class HalfMessage(Diversion):
    """A half message on its way into the log."""

    def __init__(self, transactions: Transactions, properties: dict[str, str]) -> None:
        super().__init__(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
        self._transactions = transactions
        self._group = properties[PROPERTY_PRODUCER_GROUP]
        self._immune_ms = immunity_ms(properties)

    def stored(self) -> None:
        """Open the transaction."""
        self._transactions.opened(self.queue_offset, self.log_offset, self._group, self._immune_ms)

    def add_to_grpc_entry(self, entry: Any, message_id: str) -> None:
        """Add the id by which a producer ends the transaction."""
        entry.transaction_id = str(TransactionId(message_id, self.queue_offset, self.log_offset))


class HalfSends:
    """Diverts the half messages of one broker."""

    def __init__(self, config: BrokerConfig, transactions: Transactions) -> None:
        self._config = config
        self._transactions = transactions

    def divert(
        self, send: Send, properties: dict[str, str], topic: str, queue_id: int
    ) -> HalfMessage | None:
        """Make a half message, if the producer sends one; the commit evaluates its delay again.

        Raises:
            Refusal: the broker accepts no half message, or not this one.
        """
        if not is_half(send.sys_flag, properties, send.reconsume_times):
            return None
        if "\x01" in send.group or "\x02" in send.group:
            raise IllegalMessage(
                "the producer group holds characters that end a property: a transaction keeps its "
                "group in one"
            )
        if self._config.live.reject_transaction_message:
            raise NoPermission(
                f"the broker[{self._config.broker_name}] sending transaction message is forbidden"
            )
        make_half(properties, topic, queue_id, send.group)
        return HalfMessage(self._transactions, properties)
