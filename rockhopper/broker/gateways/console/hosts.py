"""The console's path, and the host names under which it is served.

With DNS rebinding, a remote page's own name resolves to this machine, and its scripts can read
everything that is served under that name. So the Host header must contain an address, or a name
that an attacker cannot rebind: localhost, or one of this broker's own.
"""

import ipaddress
import socket
from collections.abc import Container

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol.addresses import split_address

FOLDER = "console"
HOME = f"/{FOLDER}/"
"""The path of the first page; all other paths begin with it."""


def names_of(config: BrokerConfig) -> frozenset[str]:
    """Return the names that are accepted besides addresses and localhost, in lower case."""
    own = socket.gethostname()
    advertised = [split_address(rule.address)[0] for rule in config.advertise]
    names = (own, own.partition(".")[0], config.broker_ip1, *advertised, *config.console_hosts)
    return frozenset(name.lower() for name in names if name)


def is_ours(host_line: str, names: Container[str]) -> bool:
    """Return whether a Host header names this machine."""
    is_bare = host_line.endswith("]")  # An IPv6 address without a port.
    name = host_line.strip("[]") if is_bare else split_address(host_line)[0]
    name = name.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
