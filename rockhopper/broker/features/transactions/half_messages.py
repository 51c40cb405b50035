"""The formats of half messages, op messages and requests for a check.

Half messages are in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC. The properties REAL_TOPIC and REAL_QID
contain the target, PGROUP the producer group. An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC ends
half messages: it has the tag ``d``, and its body lists their offsets in the half queue in decimal,
each followed by a comma (old brokers wrote one offset, without a comma). Its property RH_FINAL,
which RocketMQ ignores, is the commit log offset of the final message, if there is one.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.kernel.send.sender import Diversion
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.errors import IllegalMessage, NoPermission
from rockhopper.protocol.grpc_v2.transaction_id import TransactionId
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQUE_KEY,
    parse_whole_number,
)

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
HALF_QUEUE_ID = 0
TAG_FINISHED = "d"
PROPERTY_FINAL_OFFSET = "RH_FINAL"

_IMMUNITY_S_MAX = 10**9


class TransactionOpener(Protocol):
    """Opens transactions."""

    def opened(self, offset: int, log_offset: int, group: str, immune_ms: int | None) -> None:
        """Record a half message that is in the log, at *offset* of its queue.

        Its producer *group* is first asked after *immune_ms*; None means the setting's time.
        """


class DivertedHalf(Diversion):
    """A half message on its way into the log."""

    def __init__(self, opener: TransactionOpener, properties: dict[str, str]) -> None:
        super().__init__(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
        self._opener = opener
        self._group = properties[PROPERTY_PRODUCER_GROUP]
        self._immune_ms = immunity_ms(properties)

    def stored(self) -> None:
        """Open the transaction."""
        self._opener.opened(self.queue_offset, self.log_offset, self._group, self._immune_ms)

    def add_to_grpc_entry(self, entry: Any, message_id: str) -> None:
        """Add the id with which a producer ends the transaction."""
        entry.transaction_id = str(TransactionId(message_id, self.queue_offset, self.log_offset))


class HalfSends:
    """Diverts the half messages of one broker."""

    def __init__(self, config: BrokerConfig, opener: TransactionOpener) -> None:
        self._config = config
        self._opener = opener

    def divert(
        self, send: Send, properties: dict[str, str], topic: str, queue_id: int
    ) -> DivertedHalf:
        """Return the half message for *send*; the commit evaluates its delay.

        Raises:
            Refusal: the broker accepts no half message, or not this one.
        """
        if "\x01" in send.group or "\x02" in send.group:
            raise IllegalMessage(
                "the producer group contains a character that ends a property, but a transaction "
                "stores its group in one"
            )
        if self._config.transactions.reject_transaction_message:
            raise NoPermission(
                f"the broker[{self._config.broker_name}] sending transaction message is forbidden"
            )
        make_half(properties, topic, queue_id, send.group)
        return DivertedHalf(self._opener, properties)


def make_half(properties: dict[str, str], topic: str, queue_id: int, group: str) -> None:
    """Return the half message's properties for a message to *topic* and *queue_id*."""
    for name in (PROPERTY_TRANSACTION_CHECK_TIMES, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET):
        properties.pop(name, None)
    properties[PROPERTY_TRANSACTION_PREPARED] = "true"
    properties.setdefault(PROPERTY_PRODUCER_GROUP, group)
    properties[PROPERTY_TRANSACTION_ID] = properties[PROPERTY_UNIQUE_KEY]
    properties[PROPERTY_REAL_TOPIC] = topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)


def immunity_ms(properties: Mapping[str, str]) -> int | None:
    """Return the time before the first check; None if the producer leaves it to the broker."""
    seconds = parse_whole_number(properties.get(PROPERTY_CHECK_IMMUNITY_TIME))
    return min(seconds, _IMMUNITY_S_MAX) * 1000 if seconds >= 0 else None


def is_copy(properties: Mapping[str, str]) -> bool:
    """Whether this is a copy that a broker appended: RocketMQ does so at each check."""
    return (
        PROPERTY_TRANSACTION_CHECK_TIMES in properties
        or PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET in properties
    )


def op_body(offsets: tuple[int, ...]) -> bytes:
    """Return the body of the op message that ends half messages."""
    return "".join([f"{offset}," for offset in offsets]).encode()


def op_properties(final_position: int | None) -> dict[str, str]:
    """Return the properties of an op message; *final_position* is that of the final message."""
    properties = {PROPERTY_TAGS: TAG_FINISHED}
    if final_position is not None:
        properties[PROPERTY_FINAL_OFFSET] = str(final_position)
    return properties


def parse_finished_offsets(body: bytes) -> list[int]:
    """Return the half queue offsets in an op message; skip anything that is not a number."""
    parts = body.decode("ascii", "replace").split(",")
    return [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 20]


def message_to_check(half: StoredMessage, check_times: int) -> StoredMessage:
    """Return the message as it will be after a commit, so that its producer recognizes it."""
    properties = half.properties
    return dataclasses.replace(
        half,
        topic=properties.get(PROPERTY_REAL_TOPIC, half.topic),
        queue_id=max(parse_whole_number(properties.get(PROPERTY_REAL_QUEUE_ID)), 0),
        properties=properties | {PROPERTY_TRANSACTION_CHECK_TIMES: str(check_times)},
    )
