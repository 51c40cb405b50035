"""Ports for servers with a fixed port that are restarted with the same one.

The ports are below the range that Linux gives to outgoing connections; otherwise such a connection
could take the port of a server that is down for a moment. Each process has a block of its own,
because another process may check a port between this process's check and the server's start.
"""

import itertools
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack

_FIRST, _BLOCKS, _BLOCK_SIZE, _STEP = 20_000, 24, 500, 5


def _claimed() -> int:
    """Return the first port of a block that this process claims until it ends, by binding it."""
    for number in range(os.getpid(), os.getpid() + _BLOCKS):
        first = _FIRST + number % _BLOCKS * _BLOCK_SIZE
        with socket.socket() as claim:
            try:
                claim.bind(("127.0.0.1", first))
            except OSError:
                continue
            claim.detach()
            return first
    raise OSError(f"{_BLOCKS} processes have claimed ports for tests; end those that nobody needs")


_OURS = _claimed()
# The ports up to 20 above each of these are ours as well.
_PORTS = itertools.cycle(range(_OURS + _STEP, _OURS + _BLOCK_SIZE - 20, _STEP))


def free_port(below: Sequence[int] = ()) -> int:
    """Return a port that is free, like the ports *below* it by these distances (up to 4).

    A negative distance (up to -20) names a port above it, which a later call may return. No call of
    this process returns the same port soon.

    Raises:
        OSError: none was found.
    """
    for _ in range(100):
        port = next(_PORTS)
        with ExitStack() as stack:
            try:
                for distance in (0, *below):
                    stack.enter_context(socket.create_server(("127.0.0.1", port - distance)))
            except OSError:
                continue
            return port
    raise OSError("no free port was found in 100 tries; end servers that nobody needs")


def free_ports(count: int) -> list[int]:
    """Return *count* different free ports."""
    return [free_port() for _ in range(count)]
