"""The content of a send, from any protocol and serialization."""

from typing import NamedTuple

from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.properties import PROPERTY_WAIT, decode_properties


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
