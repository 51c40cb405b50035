"""Elsewhere: brokers that would take a visitor from another host for somebody on this one.

Without users a broker judges by the address that a request comes from. To one in another process of
this host the console's come from loopback, whoever visits: what it may not be asked from elsewhere
has to be refused here.
"""

import ipaddress
from collections.abc import Iterable

from rockhopper.broker.gateways.console.kept import Kept
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.topic_figures import together
from rockhopper.client.errors import ClientError
from rockhopper.client.network.addresses import BrokerAddress, split_address
from rockhopper.protocol.addresses import is_loopback


async def why_not(admin: Admin, host: str, kept: Kept) -> str:
    """Why a visitor at *host* may change nothing; blank if all masters near allow it."""
    if is_loopback(host):
        return ""
    near = tuple(each for each in await admin.brokers() if each.is_master and _is_near(each))
    closed = ", ".join(await kept.get(("closed", near), lambda: _closed(admin, near)))
    return closed and (
        f"Changes to {closed} come from this host alone, and you are at {host}: set "
        "remoteAdmin=true there as well to allow them."
    )


async def _closed(admin: Admin, near: Iterable[BrokerAddress]) -> list[str]:
    opened = await together(_is_open(admin, each) for each in near)
    return [each.name for each, is_open in zip(near, opened, strict=True) if not is_open]


def _is_near(broker: BrokerAddress) -> bool:
    """Whether requests go there by loopback, as those to a name may."""
    try:
        return ipaddress.ip_address(split_address(broker.address)[0]).is_loopback
    except ValueError:
        return True


async def _is_open(admin: Admin, broker: BrokerAddress) -> bool:
    try:
        return (await admin.broker_config(broker.address)).get("remoteAdmin") == "true"
    except ClientError:
        return False
