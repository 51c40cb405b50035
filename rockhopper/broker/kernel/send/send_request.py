"""What a send says, whatever protocol and serialisation it came by."""

from typing import NamedTuple

from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.properties import PROPERTY_WAIT, decode_properties


class Send(NamedTuple):
    """A message that somebody sends, or a batch of them, and where to."""

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
    """Who sends it, as records keep hosts."""
    version: int
    """The sending client's MQVersion ordinal."""
    connection: Peer | None = None
    apart: dict[str, str] | None = None
    """The properties, where they were never a text; *properties* is empty then."""


def waits_for_disk(properties: str) -> bool:
    """Whether a producer wants its answer only when the message is safe; nearly all do."""
    return "false" not in properties or decode_properties(properties).get(PROPERTY_WAIT) != "false"
