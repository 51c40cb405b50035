"""Addresses of brokers on the machine of their name server.

Such a broker may have registered over the loopback interface, with an address that other machines
cannot reach. Its address is then replaced like the embedded broker's: by the rules of
``advertise``, by brokerIP1, or by the address at which the client reached the name server.
"""

import dataclasses
from collections.abc import Iterable

from rockhopper.broker.name_server.route_table import BrokerAddresses
from rockhopper.broker.settings.advertise import Advertiser
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.addresses import is_loopback, split_address


class Neighbours:
    """Replaces loopback addresses for clients on other machines."""

    def __init__(self, config: BrokerConfig) -> None:
        self._advertiser = Advertiser(
            config.advertise, broker_ip1=config.broker_ip1, port=config.listen_port
        )

    def list_reachable(
        self, connection: Peer, members: Iterable[BrokerAddresses], own: str = ""
    ) -> list[BrokerAddresses]:
        """Return *members* with the addresses at which the client at *connection* can reach them.

        *own* is the address of the broker in this process, which is already correct.
        """
        if is_loopback(connection.addresses.local_host):
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
        return self._advertiser.address_for(
            connection.addresses.peer_host, connection.addresses.local_host, port
        )
