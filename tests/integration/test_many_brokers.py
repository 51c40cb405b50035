"""``--brokers 2``: clients spread over both, and whatever ends, nothing acknowledged is lost."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from rockhopper import Admin, ClientError, Consumer, Credentials, Message, Producer
from tests.integration.test_daemon import FREE, complaint
from tests.support.daemon import Daemon
from tests.support.turns import until

pytestmark = pytest.mark.costly

COUNT = 40


def pids_below(pid: int) -> list[int]:
    """Children of a process."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def send_all(nameserver: str, first: int) -> set[str]:
    """Send COUNT messages; the names of the brokers that took them."""
    async with Producer(nameserver) as producer:
        sent = [
            await producer.send(Message("orders", f"{first + number}".encode()))
            for number in range(COUNT)
        ]
    return {receipt.queue.broker_name for receipt in sent}


async def consume(nameserver: str, count: int) -> list[int]:
    bodies: list[int] = []
    async with Consumer("readers", {"orders": "*"}, nameserver=nameserver) as consumer:
        async for message in consumer:
            bodies.append(int(message.body))
            if len(bodies) >= count:
                break
    return sorted(bodies)


async def test_clients_spread_over_both_and_a_killed_one_comes_back(tmp_path: Path) -> None:
    async with Daemon(tmp_path, "--brokers", "2") as daemon:
        assert await send_all(daemon.nameserver, 0) == {"broker-a-0", "broker-a-1"}
        os.kill(pids_below(daemon.pid)[0], signal.SIGKILL)
        await until(lambda: any(line["event"] == "broker serves again" for line in daemon.lines))
        await send_all(daemon.nameserver, COUNT)
        assert await consume(daemon.nameserver, 2 * COUNT) == list(range(2 * COUNT))
        ended = next(line for line in daemon.lines if "restarting it" in line["event"])
        assert ended["how"] == "killed by SIGKILL"
        assert await daemon.stop() == 0
    assert not list(tmp_path.glob("*/abort"))


async def test_brokers_whose_parent_is_killed_stop_in_good_order(tmp_path: Path) -> None:
    async with Daemon(tmp_path, "--brokers", "2") as daemon:
        await send_all(daemon.nameserver, 0)
        brokers = pids_below(daemon.pid)
        assert len(brokers) == 2
        await daemon.kill()
        await until(lambda: not any(map(is_running, brokers)))
    assert not list(tmp_path.glob("*/abort"))
    async with Daemon(tmp_path, "--brokers", "2") as daemon:
        assert await consume(daemon.nameserver, COUNT) == list(range(COUNT))


@pytest.mark.parametrize(("first", "then"), [("2", "1"), ("1", "2"), ("3", "2")])
async def test_another_number_that_would_leave_messages_alone_is_refused(
    first: str, then: str, tmp_path: Path
) -> None:
    async with Daemon(tmp_path, "--brokers", first) as daemon:
        assert await daemon.stop() == 0
    code, text = await Daemon(tmp_path, "--brokers", then).fail(*FREE)
    assert code == 1
    line = complaint(text)
    assert str(tmp_path) in line
    assert "start with" in line


async def test_the_store_of_one_may_become_that_of_the_first(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    async with Daemon(old) as daemon:
        await send_all(daemon.nameserver, 0)
        assert await daemon.stop() == 0
    new.mkdir()
    old.rename(new / "broker-a-0")
    async with Daemon(new, "--brokers", "2") as daemon:
        assert await consume(daemon.nameserver, COUNT) == list(range(COUNT))
        assert [line for line in daemon.lines if line.get("level") not in ("info", "debug")] == []


async def test_more_than_before_serve_what_is_there(tmp_path: Path) -> None:
    async with Daemon(tmp_path, "--brokers", "2") as daemon:
        await send_all(daemon.nameserver, 0)
        assert await daemon.stop(signal.SIGINT) == 0
    async with Daemon(tmp_path, "--brokers", "3") as daemon:
        assert len(daemon.brokers) == 3
        async with asyncio.timeout(60):
            assert await consume(daemon.nameserver, COUNT) == list(range(COUNT))


ROOT_SECRET, SECRET = "the secret of root", "the secret of billing"


def users_of_two() -> tuple[str, ...]:
    first = json.dumps({"username": "root", "password": ROOT_SECRET})
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": first,
        "grpcPort": "0",
    }
    options = [f"--set={key}={value}" for key, value in settings.items()]
    return ("--brokers", "2", *options)


async def test_users_are_known_to_both_and_to_their_name_service(tmp_path: Path) -> None:
    root, billing = Credentials("root", ROOT_SECRET), Credentials("billing", SECRET)

    async def send(credentials: Credentials, names: str) -> set[str]:
        async with Producer(names, credentials=credentials, retries=0) as producer:
            sent = [await producer.send("orders", b"%d" % number) for number in range(8)]
        return {receipt.queue.broker_name for receipt in sent}

    async with Daemon(tmp_path, *users_of_two()) as daemon:
        names = daemon.nameserver
        async with Admin(names, credentials=root) as admin:
            await admin.create_topic("orders", queues=2)
            await admin.accounts.add_user("billing", SECRET)
            with pytest.raises(ClientError, match=r"is not allowed|NO_PERMISSION"):
                await send(billing, names)
            await admin.accounts.add_rule("billing", "Topic:orders", ["Pub"], is_allowed=True)

            async def sends() -> bool:
                # The name server hears of it a moment after the brokers do.
                try:
                    return await send(billing, names) == {"broker-a-0", "broker-a-1"}
                except ClientError:
                    return False

            while not await sends():
                pass
        for stranger in (Credentials("billing", ROOT_SECRET), Credentials("nobody", SECRET)):
            with pytest.raises(ClientError, match="sign"):
                await send(stranger, names)
        os.kill(pids_below(daemon.pid)[0], signal.SIGKILL)
        await until(lambda: any(line["event"] == "broker serves again" for line in daemon.lines))
        assert await send(billing, names) == {"broker-a-0", "broker-a-1"}
        await daemon.kill()
    async with Daemon(tmp_path, *users_of_two()) as daemon:
        await until(lambda: len(daemon.brokers) == 2)
        assert await send(billing, daemon.nameserver) == {"broker-a-0", "broker-a-1"}
        said = json.dumps(daemon.lines)
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids_below(daemon.pid)]
        assert SECRET not in said
        assert b"accessKey" not in b"".join(commands)
        assert await daemon.stop() == 0
