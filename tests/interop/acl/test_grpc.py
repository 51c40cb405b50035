"""Each call of a RocketMQ 5 client needs the rights that Apache's proxy asks for, or more."""

import asyncio
from pathlib import Path

import pytest

from rockhopper.protocol.signing import Credentials
from tests.interop import rockhopper
from tests.interop.acl import grants
from tests.interop.acl.asking import APACHE_SETTINGS, ROOT, SECRET, SETTINGS, calling
from tests.interop.acl.differences import OF_GRPC, unexplained
from tests.interop.acl.grants import GRANTS, NOBODY, SUPER
from tests.interop.acl.grpc_calls import CALLS, GrpcCaller
from tests.interop.grpc import apache_proxy
from tests.interop.grpc.apache_proxy import Ports
from tests.support.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

_PROXY = "org.apache.rocketmq.proxy.auth.Proxy"
PROXY_SETTINGS = {
    **{name: value for name, value in APACHE_SETTINGS.items() if name != "recallMessageEnable"},
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationMetadataProvider": f"{_PROXY}AuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_PROXY}AuthorizationMetadataProvider",
}


async def sufficient(broker_address: str, endpoint: str) -> dict[str, str]:
    async with calling(broker_address) as broker:
        await grants.make_users(broker)
    users = {grant: Credentials(grants.user_name(grant), SECRET) for grant in GRANTS}
    found: dict[str, set[str]] = {name: set() for name in CALLS}
    caller = GrpcCaller(endpoint)
    for grant, user in {NOBODY: None, **users, SUPER: ROOT}.items():
        verdicts = await asyncio.gather(*(caller.allows(name, user) for name in CALLS))
        for name, is_allowed in zip(CALLS, verdicts, strict=True):
            if is_allowed:
                found[name].add(grant)
    await caller.close()
    return {name: grants.least(enough) for name, enough in found.items()}


@pytest.mark.usefixtures("jdk")
def test_calls_need_the_rights_that_the_proxy_asks_for(tmp_path: Path) -> None:
    ports, port = Ports.free(), free_port()
    proxy = apache_proxy.start(
        tmp_path / "apache",
        settings=APACHE_SETTINGS,
        proxy_settings=PROXY_SETTINGS,
        ports=ports,
    )
    try:
        apache = asyncio.run(sufficient(f"127.0.0.1:{ports.broker}", proxy.endpoint))
    finally:
        proxy.kill()
    server = rockhopper.start(tmp_path / "ours", settings={**SETTINGS, "grpcPort": str(port)})
    try:
        ours = asyncio.run(sufficient(server.broker_address, f"127.0.0.1:{port}"))
    finally:
        server.kill()
    assert unexplained(apache, ours, OF_GRPC) == {}
