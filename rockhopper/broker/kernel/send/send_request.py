"""The content of a send, from any protocol and serialization."""

from collections.abc import Mapping
from typing import NamedTuple

from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT,
    decode_properties,
    whole_number,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_MASK, SYS_FLAG_TRANSACTION_PREPARED


class Send(NamedTuple):
    """A message, or a batch, with its target."""

    group: str
    topic: str
    default_topic: str
    default_queue_nums: int
    queue_id: int
    sys_flag: int
    born_time_ms: int
    flag: int
    properties: str
    reconsume_times: int
    reconsume_times_max: int | None
    is_batch: bool
    unit_mode: bool
    body: bytes
    born_host: bytes
    """The sender's address in the format of records."""
    version: int
    """The sending client's MQVersion ordinal."""
    connection: Peer | None = None
    apart: dict[str, str] | None = None
    """The properties, if they were never text; *properties* is then empty."""


def waits_for_disk(properties: str) -> bool:
    """Return whether a producer wants its answer only once the message is safe; nearly all do."""
    return "false" not in properties or decode_properties(properties).get(PROPERTY_WAIT) != "false"


def is_half(send: Send, properties: Mapping[str, str]) -> bool:
    """Return whether *send*, with these decoded *properties*, begins a transaction.

    A message that a consumer sends back does not: it carries TRAN_MSG of its first delivery.
    """
    if send.reconsume_times > 0 and whole_number(properties.get(PROPERTY_DELAY_LEVEL)) > 0:
        return False
    return (
        properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
        or send.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_PREPARED
    )
