"""Message ids as RocketMQ's clients make them (UNIQ_KEY), unique across machines and restarts."""

import socket
import time

from rockhopper.client.network.addresses import own_host
from rockhopper.protocol.message_ids import UniqueIds


def unique_ids() -> UniqueIds:
    """What makes the ids of one producer."""
    return UniqueIds(socket.inet_aton(own_host()), lambda: time.time_ns() // 1_000_000)
