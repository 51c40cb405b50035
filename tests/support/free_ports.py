"""Ports for servers that are started again under the address that they had."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Some ports that nobody listens on, as far as one can know."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def free_port_above(distance: int) -> int:
    """A free port; the one *distance* below it is free as well."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port - distance))
            except OSError:
                continue
            return port
