"""A broker with users, and our client as each of them."""

import pytest

from rockhopper.broker.broker import Broker
from rockhopper.client import Admin, Credentials, Producer
from rockhopper.client.errors import ClientError
from tests.support.free_ports import free_port
from tests.support.turns import until

SECRET = "the secret of root"
SETTINGS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": f'{{"username": "root", "password": "{SECRET}"}}',
}


@pytest.fixture(params=[("root", SECRET), ("root", "another"), ("nobody", SECRET), None])
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str] | None:
    if request.param is not None:
        monkeypatch.setenv("ROCKHOPPER_ACCESS_KEY", request.param[0])
        monkeypatch.setenv("ROCKHOPPER_SECRET_KEY", request.param[1])
    user: tuple[str, str] | None = request.param
    return user


async def test_users_are_served_and_nobody_else(
    user: tuple[str, str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker.temporary(SETTINGS) as broker:
        if user == ("root", SECRET):
            async with Producer(broker.nameserver) as producer:
                await producer.send("orders", b"signed")
            async with Admin(broker.nameserver) as admin:
                assert "orders" in await admin.topics()
        else:
            async with Admin(broker.nameserver) as admin:
                with pytest.raises(ClientError, match=r"sign"):
                    await admin.topics()
    assert SECRET not in capsys.readouterr().out


async def test_a_follower_asks_its_master_as_a_user(capsys: pytest.CaptureFixture[str]) -> None:
    inner = f'{{"accessKey": "root", "secretKey": "{SECRET}"}}'
    master = SETTINGS | {"haMode": "classic", "haListenPort": str(free_port())}
    async with Broker.temporary(master) as leading:
        credentials = Credentials("root", SECRET)
        async with Producer(leading.nameserver, credentials=credentials) as producer:
            await producer.send("orders", b"signed")
        end = leading.store.max_commit_log_offset
        follower = SETTINGS | {
            "followMaster": leading.address,
            "innerClientAuthenticationCredentials": inner,
        }
        async with Broker.temporary(follower) as following:
            await until(lambda: following.store.max_commit_log_offset == end)
    assert SECRET not in capsys.readouterr().out
