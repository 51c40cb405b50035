"""Message ids in the format of RocketMQ's clients (UNIQ_KEY).

They are unique across machines and restarts.
"""

import time

from rockhopper.protocol.addresses import ip_bytes
from rockhopper.protocol.message_ids import UniqueIds
from rockhopper.sockets import find_own_host


def make_unique_ids() -> UniqueIds:
    """Return the id generator of one producer."""
    return UniqueIds(ip_bytes(find_own_host()), lambda: time.time_ns() // 1_000_000)
