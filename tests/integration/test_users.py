"""A broker with users, and our client as each of them."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rockhopper import App, ReceivedMessage, sync
from rockhopper.broker.app import Broker
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.users.errors import NotAuthenticated
from rockhopper.broker.users.peer import Principal
from rockhopper.client import Admin, Consumer, Credentials, Producer
from rockhopper.client.errors import ClientError
from rockhopper.client.queues import MessageQueue
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
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
                who = "the request was not signed" if user is None else f"signed as {user[0]!r}"
                with pytest.raises(ClientError, match=rf"sign.*{who}"):
                    await admin.topics()
    assert SECRET not in capsys.readouterr().out


async def test_a_large_frame_is_for_who_names_a_user() -> None:
    async with Broker.temporary(SETTINGS | {"brokerIP1": "127.0.0.1"}) as broker:
        async with Producer(broker.nameserver, credentials=Credentials("root", SECRET)) as producer:
            await producer.send("orders", bytes(2 << 20))
        for address in (broker.address, broker.nameserver):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            header = b'{"code":310}'
            writer.write(struct.pack(">II", 16_000_000, len(header)) + header + bytes(1 << 20))
            async with asyncio.timeout(HANG_S):
                with suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()


async def test_a_follower_asks_its_master_as_a_user(capsys: pytest.CaptureFixture[str]) -> None:
    inner = f'{{"accessKey": "root", "secretKey": "{SECRET}"}}'
    master = SETTINGS | {"haMode": "classic", "haListenPort": str(free_port())}
    async with Broker.temporary(master) as leading:
        credentials = Credentials("root", SECRET)
        async with Producer(leading.nameserver, credentials=credentials) as producer:
            await producer.send("orders", b"signed")
        end = leading.store.log.written_offset
        follower = SETTINGS | {
            "followMaster": leading.address,
            "innerClientAuthenticationCredentials": inner,
        }
        async with Broker.temporary(follower) as following:
            await until(lambda: following.store.log.written_offset == end)
    assert SECRET not in capsys.readouterr().out


async def test_a_secret_is_changed_under_a_client_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "credentials"

    def write(secret: str) -> None:
        path.touch(0o600)
        path.write_text(f"accessKey: al\nsecretKey: {secret}\n")

    write("the old secret of al")
    async with (
        Broker.temporary(SETTINGS) as broker,
        Admin(broker.nameserver, credentials=Credentials("root", SECRET)) as admin,
    ):
        await admin.accounts.add_user("al", "the old secret of al", is_super=True)
        async with Producer(broker.nameserver, credentials=path) as producer:
            await producer.send("orders", b"before")
            connection = producer.session.pool.existing(broker.address)
            assert connection is not None
            write("the new secret of al")
            await admin.accounts.change_secret("al", "the new secret of al")
            await connection.closed
            await producer.send("orders", b"after")
            write("no secret of al")
            await admin.accounts.change_secret("al", "the newest secret of al")
            with pytest.raises(ClientError, match=f"'al' with the secret of .*{path}"):
                await producer.send("orders", b"late")


async def test_the_answer_to_a_change_of_ones_own_user_comes_before_the_connection_ends() -> None:
    async with Broker.temporary(SETTINGS) as broker:
        root = Credentials("root", SECRET)
        async with Admin(broker.nameserver, credentials=root) as admin:
            await admin.accounts.add_user("other", SECRET, is_super=True)
            await admin.accounts.change_secret("root", "a secret that is new")
        other = Credentials("other", SECRET)
        async with Admin(broker.nameserver, credentials=other) as admin:
            await admin.accounts.remove_user("other")
        new = Credentials("root", "a secret that is new")
        async with Admin(broker.nameserver, credentials=new) as admin:
            assert [user["username"] for _, user in await admin.accounts.users()] == ["root"]


async def test_the_right_to_pull_covers_what_a_consumer_asks_around_it() -> None:
    """The example of security.md: Sub for the topic and for the group, and nothing else."""
    root, billing = Credentials("root", SECRET), Credentials("billing", "the secret of billing")
    async with (
        Broker.temporary(SETTINGS) as broker,
        Admin(broker.nameserver, credentials=root) as admin,
        Producer(broker.nameserver, credentials=root) as producer,
    ):
        await producer.send("orders", b"first")
        await admin.accounts.add_user("billing", "the secret of billing")
        for resource in ("Topic:orders", "Group:billing*"):
            await admin.accounts.add_rule("billing", resource, ["Sub"], is_allowed=True)
        consumer = Consumer("billing", "orders", nameserver=broker.nameserver, credentials=billing)
        async with asyncio.timeout(HANG_S), consumer:
            async for message in consumer:
                assert message.body == b"first"
                break


async def test_what_a_group_popped_is_its_own_and_not_of_a_group_of_the_joined_name() -> None:
    root, al = Credentials("root", SECRET), Credentials("al", "the secret of al")
    async with (
        Broker.temporary(SETTINGS) as broker,
        Admin(broker.nameserver, credentials=root) as admin,
        Admin(broker.nameserver, credentials=al) as asked,
    ):
        await admin.accounts.add_user("al", "the secret of al")
        await admin.accounts.add_rule("al", "Group:orders", ["Get"], is_allowed=True)
        for topic in ("paid", "%RETRY%orders_paid"):
            broker.tables.topics.put(TopicConfig(topic, read_queue_nums=1, write_queue_nums=1))
        queue = MessageQueue("%RETRY%orders_paid", "broker-a", 0)
        with pytest.raises(ClientError, match="Group:orders_paid"):
            await asked.offsets.max_offset(queue)
        broker.tables.offsets.commit("paid", "orders", 0, 0)
        assert await asked.offsets.max_offset(queue) == 0


async def test_a_client_reads_its_file_again_when_its_signature_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "credentials"

    def write(secret: str) -> None:
        file.write_text(f"accessKey: sender\nsecretKey: {secret}\n")
        file.chmod(0o600)

    async with Broker.temporary(SETTINGS) as broker:
        root = Credentials("root", SECRET)
        async with Admin(broker.nameserver, credentials=root) as admin:
            await admin.accounts.add_user("sender", "the first secret", is_super=True)
            write("the first secret")
            async with Producer(broker.nameserver, credentials=file, retries=0) as producer:
                await producer.send("orders", b"1")
                await admin.accounts.change_secret("sender", "the second secret")
                pool = producer.session.pool
                await until(
                    lambda: broker.address not in [each.address for each in pool.connections]
                )
                with pytest.raises(ClientError, match="signature"):
                    await producer.send("orders", b"2")
                write("the second secret")
                await producer.send("orders", b"3")


class Changed:
    """A user whose secret is changed at the broker, and then, later, in the file of the client."""

    def __init__(self, broker: Broker, admin: Admin, file: Path) -> None:
        self._broker, self._admin, self.file = broker, admin, file
        self._refused = 0
        authenticator = broker.access.authenticator
        verify = authenticator.verify

        def count(*arguments: Any) -> Principal:
            try:
                return verify(*arguments)
            except NotAuthenticated:
                self._refused += 1
                raise

        authenticator.verify = count  # type: ignore[method-assign, assignment]

    def write(self, secret: str) -> None:
        self.file.touch(0o600)
        self.file.write_text(f"accessKey: al\nsecretKey: {secret}\n")

    async def at_the_broker(self) -> None:
        await self._admin.accounts.change_secret("al", "the second secret")

    async def refused(self) -> None:
        """Wait until the client has been refused with what its file says."""
        await until(lambda: self._refused > 0)

    def in_the_file(self) -> None:
        self.write("the second secret")


@pytest.fixture
async def changed(tmp_path: Path) -> AsyncIterator[tuple[Broker, Changed]]:
    async with (
        Broker.temporary(SETTINGS) as broker,
        Admin(broker.nameserver, credentials=Credentials("root", SECRET)) as admin,
    ):
        await admin.accounts.add_user("al", "the first secret", is_super=True)
        await admin.create_topic("orders", queues=1)
        made = Changed(broker, admin, tmp_path / "credentials")
        made.write("the first secret")
        yield broker, made


async def test_an_app_goes_on_once_its_file_has_the_new_secret(
    changed: tuple[Broker, Changed],
) -> None:
    broker, secret = changed
    got: asyncio.Queue[bytes] = asyncio.Queue()
    app = App(broker.nameserver, credentials=secret.file)

    @app.subscriber("orders", group="billing")
    async def bill(message: ReceivedMessage) -> None:
        got.put_nowait(message.body)

    async with asyncio.timeout(HANG_S), app:
        await app.producer.send("orders", b"before")
        assert await got.get() == b"before"
        await secret.at_the_broker()
        await secret.refused()
        secret.in_the_file()
        await app.producer.send("orders", b"after")
        assert await got.get() == b"after"


async def test_synchronous_clients_go_on_once_their_file_has_the_new_secret(
    changed: tuple[Broker, Changed],
) -> None:
    broker, secret = changed
    loop = asyncio.get_running_loop()
    got: asyncio.Queue[bytes] = asyncio.Queue()
    producer = sync.Producer(broker.nameserver, credentials=secret.file, retries=0)
    consumer = sync.Consumer(
        "billing", "orders", nameserver=broker.nameserver, credentials=secret.file
    )

    def consume() -> None:
        with consumer:
            for message in consumer:
                loop.call_soon_threadsafe(got.put_nowait, message.body)

    async with asyncio.timeout(HANG_S):
        consuming = asyncio.create_task(asyncio.to_thread(consume))
        await asyncio.to_thread(producer.send, "orders", b"before")
        assert await got.get() == b"before"
        await secret.at_the_broker()
        await secret.refused()
        with pytest.raises(ClientError, match="signature"):
            await asyncio.to_thread(producer.send, "orders", b"refused")
        secret.in_the_file()
        await asyncio.to_thread(producer.send, "orders", b"after")
        assert await got.get() == b"after"
        consumer.stop()
        await consuming
        await asyncio.to_thread(producer.close)
