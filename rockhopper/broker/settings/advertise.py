"""The advertised address: which address of this broker each client gets.

One address does not fit all: behind published container ports, the host and neighbouring containers
reach the same broker at different addresses. The first of these that applies is used:

    1. the rules of the setting ``advertise``, by the client's address
    2. the setting ``brokerIP1``
    3. the local address of the client's connection: it has just been shown to work

A rule is ``network=address``. The network is an IP address, a CIDR network, ``gateway`` (the
default gateway: how a container sees its host), ``subnet`` (the networks of this host) or ``any``.
The address is ``host:port``, ``host`` or ``self`` (3. above); without a port it is the broker's
own.
"""

import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rockhopper.protocol.addresses import join_address, split_address
from rockhopper.sockets import find_own_host

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_RULE_FORM = "expected rules network=host:port, separated by ,"
_ROUTE_TABLE = Path("/proc/net/route")


@dataclass(frozen=True, slots=True)
class AdvertiseRule:
    """Clients from *network* get *address*; both as the setting spells them."""

    network: str
    address: str

    def __str__(self) -> str:
        return f"{self.network}={self.address}"


def parse_rule(text: str) -> AdvertiseRule:
    """Return the rule in *text*. Raises ValueError with the allowed form."""
    network, separator, address = (part.strip() for part in text.partition("="))
    if not (network and separator and address):
        raise ValueError(f"{text!r} is not a rule: {_RULE_FORM}")
    if network not in ("gateway", "subnet", "any"):
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise ValueError(
                f"{network!r} is not a network: expected a.b.c.d/n, gateway, subnet or any"
            ) from None
    _, port = split_address(address)
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"{address!r} has no port from 1 to 65535: {_RULE_FORM}")
    return AdvertiseRule(network, address)


class Advertiser:
    """Chooses the address of this broker for each client."""

    def __init__(
        self,
        rules: Sequence[AdvertiseRule],
        *,
        broker_ip1: str,
        port: int,
        route_table: str | None = None,
    ) -> None:
        gateways, subnets = parse_route_table(
            _read_route_table() if route_table is None else route_table
        )
        self._broker_ip1 = broker_ip1
        self._port = port
        self._rules = [
            (network, rule.address)
            for rule in rules
            for network in _networks(rule.network, gateways, subnets)
        ]

    def address_for(self, peer_host: str, local_host: str, port: int | None = None) -> str:
        """Return the address for a peer at *peer_host* whose connection arrived at *local_host*.

        *port* is that of another broker of this machine: it is as far from the port of a rule as it
        is from this broker's own.
        """
        port = self._port if port is None else port
        for network, address in self._rules:
            if _contains(network, peer_host):
                return self._complete(address, local_host, port)
        return join_address(self._broker_ip1 or local_host, port)

    def _complete(self, address: str, local_host: str, port: int) -> str:
        host, rule_port = split_address(address)
        if rule_port is not None:
            port += rule_port - self._port
        return join_address(local_host if host == "self" else host, port)


def parse_route_table(text: str) -> tuple[list[Network], list[Network]]:
    """Return default gateways and connected networks, in the format of /proc/net/route."""
    gateways: list[Network] = []
    subnets: list[Network] = []
    for line in text.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 8:
            continue
        destination, gateway, mask = (_ipv4(columns[index]) for index in (1, 2, 7))
        if destination == mask == "0.0.0.0":
            gateways.append(ipaddress.ip_network(gateway))
        elif gateway == "0.0.0.0":
            subnets.append(ipaddress.ip_network(f"{destination}/{mask}", strict=False))
    return gateways, subnets


def choose_fixed_host(bind_address: str, broker_ip1: str) -> str:
    """Return the one address for the store host in stored messages.

    It is a numeric address: clients decode it from message ids, 4 bytes or 16.
    """
    for host in (broker_ip1, bind_address):
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            continue
        if not address.is_unspecified:
            return host
    return find_own_host()


def _ipv4(little_endian_hex: str) -> str:
    return socket.inet_ntoa(struct.pack("<I", int(little_endian_hex, 16)))


def _read_route_table() -> str:
    try:
        return _ROUTE_TABLE.read_text("ascii")
    except OSError:
        return ""


def _networks(name: str, gateways: list[Network], subnets: list[Network]) -> list[Network]:
    if name == "gateway":
        return gateways
    if name == "subnet":
        return subnets
    if name == "any":
        return [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    return [ipaddress.ip_network(name, strict=False)]


def _contains(network: Network, host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]) in network
    except ValueError:
        return False
