"""Ports for servers that are told which to take, and are started again under the same.

They lie below those that Linux gives to outgoing connections, or one of these could take the place
of a server that is down for a moment. Each process has a block of its own: between the look at a
port and the server's start, another one may look as well.
"""

import itertools
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack

_FIRST, _BLOCKS, _BLOCK_SIZE, _STEP = 20_000, 24, 500, 5


def _claimed() -> int:
    """The first port of a block that is this process's until it ends, for it stays bound to it."""
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
# What is up to 20 above each of them is ours as well.
_PORTS = itertools.cycle(range(_OURS + _STEP, _OURS + _BLOCK_SIZE - 20, _STEP))


def free_port(below: Sequence[int] = ()) -> int:
    """A port that nobody listens on, nor on the ports *below* it by these distances (up to 4).

    A negative distance (up to -20) names a port above it, which a later call may get.
    No call of this process gets the same one soon.

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
    """As many different ones."""
    return [free_port() for _ in range(count)]
