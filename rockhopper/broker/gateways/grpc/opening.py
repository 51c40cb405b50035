"""Opens a broker's gRPC gateway, and computes the gRPC addresses of other brokers.

The distance between a broker's gRPC port and its listenPort must be the same on all brokers. This
holds for the brokers of one process group (brokers=N), and for those of a cluster with the same
settings.
"""

from collections.abc import Mapping

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.gateways.grpc.activities.routes import BrokerQueues
from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.gateway import GrpcGateway
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.settings.advertise import Advertiser
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.addresses import join_address, split_address


def open_gateway(
    kernel: Kernel,
    features: Mapping[str, FeaturePart],
    access: AccessRules,
    advertiser: Advertiser,
    port: int,
    connections_max: int,
    gate: LeaseGate | None = None,
) -> GrpcGateway:
    """Return the gateway; *port* is its future port. GrpcGateway explains *gate*."""
    own_name = kernel.config.broker_name

    async def brokers_of(topic: str, call: Call) -> list[BrokerQueues]:
        connection = call.connection
        own = advertiser.address_for(
            connection.addresses.peer_host, connection.addresses.local_host
        )
        own_grpc = advertiser.address_for(
            connection.addresses.peer_host, connection.addresses.local_host, port
        )
        found = []
        for each in await kernel.cluster.queues.brokers_of(topic, own):
            is_own = each.broker_name == own_name
            address = own_grpc if is_own else _derive_address(each.address, own, own_grpc)
            found.append(BrokerQueues(*each[:4], address, is_own))
        return found

    return GrpcGateway(kernel, features, access, brokers_of, connections_max, gate)


def _derive_address(address: str, own: str, own_grpc: str) -> str:
    """Return the gRPC address of the broker at *address*."""
    host, port = split_address(address)
    apart = (split_address(own_grpc)[1] or 0) - (split_address(own)[1] or 0)
    return join_address(host, (port or 0) + apart)
