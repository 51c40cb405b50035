"""Ports are bound before the store is opened, but listen only afterwards.

So a port in use is noticed before anything is changed, and a port chosen by the system (0) is known
for the first log line and for stored messages. No client can connect before everything is ready: a
port that is bound and does not listen refuses connections.
"""

import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from rockhopper.broker.server.listening.gates import gate_of
from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.listening.tls import TlsError
from rockhopper.broker.server.remoting.startup import StartError, port_error, store_errors_explained
from rockhopper.broker.settings.advertise import choose_fixed_host
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.settings.tls_config import TlsConfig
from rockhopper.protocol.addresses import join_address
from rockhopper.sockets import find_own_address

# Hosts that mean all addresses, and the address by which this machine then reaches itself.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Ports:
    """The ports of one process, by the settings that name them."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._bound: dict[str, socket.socket] = {}
        self._numbers: dict[str, int] = {}
        self._adopted: set[str] = set()
        self.gate = OPEN
        """The gate for incoming connections."""

    def bind(self, key: str, port: int) -> None:
        """Bind the port of setting *key*; 0 picks a free one, a negative number means none.

        Ports that were closed are bound again with their former numbers.

        Raises:
            StartError: it cannot be bound; the message says what to do.
        """
        if port >= 0 and key not in self._bound:
            port = port or self._numbers.get(key, 0)
            bound = self._bound[key] = _bind(key, self._host, port)
            self._numbers[key] = int(bound.getsockname()[1])

    def take_again(self, key: str) -> None:
        """Bind the port of *key* again after its server has stopped.

        Raises:
            StartError: another process has it now.
        """
        number = self._numbers.get(key)
        if number is not None:
            if key in self._bound:
                self._bound.pop(key).close()
            self.bind(key, number)

    def adopt(self, key: str, bound: socket.socket) -> None:
        """Use a socket for *key* that the caller has bound; its clients need no TLS."""
        self._adopted.add(key)
        self._bound[key] = bound
        self._numbers[key] = int(bound.getsockname()[1])

    async def listen(
        self, key: str, start_on: Callable[[socket.socket, Gate], Awaitable[None]]
    ) -> None:
        """Pass the port of *key*, if there is one, to the server that listens on it from now on.

        Raises:
            StartError: another process listens on it now.
        """
        bound = self._bound.get(key)
        if bound is not None:
            try:
                await start_on(bound, OPEN if key in self._adopted else self.gate)
            except OSError as error:
                raise port_error(key, self._host, self._numbers[key], error) from error

    def open_gate(self, config: TlsConfig, layout: StoreLayout, names: Iterable[str]) -> None:
        """Make the gate for incoming connections by *config*; *names* are this machine's.

        Raises:
            StartError: a certificate or its key cannot be used; the message says what to do.
        """
        if self.gate is not OPEN:
            return
        try:
            with store_errors_explained(layout.root):
                self.gate = gate_of(config, layout.config, names)
        except TlsError as error:
            raise StartError(str(error)) from error
        if self.gate.tls is not None:
            self.gate.tls.start()

    def certificate(self) -> Path | None:
        """Return the certificate of these ports; None without TLS."""
        return None if self.gate.tls is None else self.gate.tls.files.certificate

    def close_gate(self) -> None:
        """Stop checking certificates."""
        if self.gate.tls is not None:
            self.gate.tls.close()
        self.gate = OPEN

    def number(self, key: str) -> int:
        """Return the port of *key*; 0 if there is none."""
        return self._numbers.get(key, 0)

    def address(self, key: str) -> str:
        """Return host:port of *key*, as this machine reaches it; blank if there is none."""
        host = _EVERYWHERE.get(self._host, self._host)
        return join_address(host, self._numbers[key]) if key in self._numbers else ""

    def listening(self) -> dict[str, str]:
        """Return all listening addresses for the log; ``address`` returns only one of them."""
        if self._host not in _EVERYWHERE:
            return {}
        numbers = ", ".join(str(number) for number in self._numbers.values())
        own = choose_fixed_host(self._host, "")
        return {
            "listens_on": f"{self._host}, every address of this host ({own} and others): {numbers}"
        }

    def close(self) -> None:
        """Close every port, listening or not."""
        for bound in self._bound.values():
            bound.close()
        self._bound.clear()


def _bind(key: str, host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = find_own_address(host, port)
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise port_error(key, host, port, error) from error
    try:
        if os.name == "posix":
            # Connections of a broker that has just stopped may linger on the port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise port_error(key, host, port, error) from error
    return bound
