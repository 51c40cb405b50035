"""A broker with a gateway for 5.x clients, and one of them."""

from tests.support.grpc_fixtures import client, served

__all__ = ["client", "served"]
