"""Addresses of brokers that run on the machine of their name service.

Such a broker may have registered over the loopback, where no other machine finds it. It is told as
the embedded broker is: by the rules of ``advertise``, by brokerIP1, or at the address at which the
asking client reached the name service.
"""

import dataclasses
from collections.abc import Iterable

from rockhopper.broker.name_server.route_table import Member
from rockhopper.broker.settings.advertise import Advertiser
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.addresses import is_loopback, split_address


class Neighbours:
    """What clients elsewhere are told instead of an address on the loopback."""

    def __init__(self, config: BrokerConfig) -> None:
        self._advertiser = Advertiser(
            config.advertise, broker_ip1=config.broker_ip1, port=config.listen_port
        )

    def as_reached(
        self, connection: Peer, members: Iterable[Member], own: str = ""
    ) -> list[Member]:
        """*members* with the addresses at which the client at *connection* can reach them.

        *own* is already that of the broker in this process.
        """
        if is_loopback(connection.local_host):
            return list(members)
        return [
            dataclasses.replace(
                member,
                addresses={
                    broker_id: address if address == own else self._address(connection, address)
                    for broker_id, address in member.addresses.items()
                },
            )
            for member in members
        ]

    def _address(self, connection: Peer, address: str) -> str:
        host, port = split_address(address)
        if not is_loopback(host):
            return address
        return self._advertiser.address_for(connection.peer_host, connection.local_host, port)
