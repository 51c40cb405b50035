"""Ports for servers that are told which to take, and are started again under the same.

They lie below those that Linux gives to outgoing connections, or one of these could take the place
of a server that is down for a moment.
"""

import itertools
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack

_FIRST, _COUNT, _STEP = 20_000, 12_000, 5
_OFFSETS = itertools.count(os.getpid() * 37 * _STEP, _STEP)


def free_port(below: Sequence[int] = ()) -> int:
    """A port that nobody listens on, nor on the ports *below* it by these distances (up to 4).

    A negative distance names a port above it, which somebody else may be given later.

    No call of this process gets the same one soon.

    Raises:
        OSError: none was found.
    """
    for _ in range(100):
        port = _FIRST + next(_OFFSETS) % _COUNT
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
