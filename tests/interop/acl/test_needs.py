"""Each request needs the rights that Apache's broker asks for, or more for a reason."""

import asyncio

import pytest

from tests.interop.acl import grants, requests
from tests.interop.acl.asking import calling
from tests.interop.acl.conftest import Pair
from tests.interop.acl.differences import OF_BROKER, OF_NAME_SERVICE, unexplained
from tests.interop.conftest import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def guarded(pair: Pair) -> Pair:
    """Both brokers, with a user for each grant."""

    async def make(server: Server) -> None:
        async with calling(server.broker_address) as broker:
            await grants.make_users(broker)

    for server in pair:
        asyncio.run(make(server))
    return pair


def test_requests_to_a_broker(guarded: Pair) -> None:
    apache, ours = (
        asyncio.run(grants.sufficient(server.broker_address, requests.of_broker()))
        for server in guarded
    )
    assert unexplained(apache, ours, OF_BROKER) == {}


def test_requests_to_a_name_service(guarded: Pair) -> None:
    apache, ours = (
        asyncio.run(grants.sufficient(server.nameserver, requests.of_name_service()))
        for server in guarded
    )
    assert unexplained(apache, ours, OF_NAME_SERVICE) == {}
