"""Refuses remote visitors whom another broker would take for local ones.

Without users, a broker decides by the address of a request. Requests of the console reach a broker
in another process on this host from the loopback address, whatever the visitor's address is. So the
console itself must refuse what that broker would refuse to a remote client.
"""

import ipaddress
from collections.abc import Collection
from functools import partial

from rockhopper.broker.gateways.console.cache import ResultCache
from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import ClientError
from rockhopper.client.network.addresses import BrokerAddress, split_address
from rockhopper.protocol.addresses import is_loopback
from rockhopper.tasks import gather_some_at_a_time


async def explain_refusal(admin: Admin, host: str, kept: ResultCache) -> str:
    """Return why a visitor at *host* may change nothing.

    The reason is blank if all masters on this host allow it.
    """
    if is_loopback(host):
        return ""
    near = tuple(each for each in await admin.brokers() if each.is_master and _is_near(each))
    closed = ", ".join(await kept.get(("closed", near), lambda: _list_closed(admin, near)))
    return closed and (
        f"Changes to {closed} are only allowed from this host, but you are at {host}: set "
        "remoteAdmin=true there as well to allow them."
    )


async def _list_closed(admin: Admin, near: Collection[BrokerAddress]) -> list[str]:
    opened = await gather_some_at_a_time(partial(_is_open, admin), near)
    return [each.name for each, is_open in zip(near, opened, strict=True) if not is_open]


def _is_near(broker: BrokerAddress) -> bool:
    """Return whether requests to the broker use the loopback, as those to a host name may."""
    try:
        return ipaddress.ip_address(split_address(broker.address)[0]).is_loopback
    except ValueError:
        return True


async def _is_open(admin: Admin, broker: BrokerAddress) -> bool:
    try:
        return (await admin.broker_config(broker.address)).get("remoteAdmin") == "true"
    except ClientError:
        return False
