"""Where the console is: its path, and the names that it may be reached by.

A page elsewhere can have its own name point to this machine's address (DNS rebinding), and its
scripts then read whatever is served under that name. So the Host line has to hold an address, or a
name that somebody who rebinds cannot have: localhost, or one that is this broker's own.
"""

import ipaddress
import socket
from collections.abc import Container

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol.addresses import split_address

FOLDER = "console"
HOME = f"/{FOLDER}/"
"""The path of its first page; all others begin with it."""


def names_of(config: BrokerConfig) -> frozenset[str]:
    """The names that are taken beside addresses and localhost, in lower case."""
    own = socket.gethostname()
    advertised = [split_address(rule.address)[0] for rule in config.advertise]
    names = (own, own.partition(".")[0], config.broker_ip1, *advertised, *config.console_hosts)
    return frozenset(name.lower() for name in names if name)


def is_ours(host_line: str, names: Container[str]) -> bool:
    """Whether what stands in a Host line is this machine."""
    is_bare = host_line.endswith("]")  # an IPv6 address without a port
    name = host_line.strip("[]") if is_bare else split_address(host_line)[0]
    name = name.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
