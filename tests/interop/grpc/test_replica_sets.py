"""Clients of a replica set of ours that name the ports of all replicas, and lose the master."""

import asyncio
from pathlib import Path

import pytest

from tests.interop.grpc import topics
from tests.interop.grpc.conftest import Programs
from tests.interop.grpc.programs import ANSWER_TIMEOUT_S, CLIENTS
from tests.interop.grpc.servers import Certificate
from tests.interop.test_replicas_java import a_set
from tests.support.free_ports import free_port

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("etcd_server"),
]

SEVERAL = [name for name, each in CLIENTS.items() if "several endpoints" not in each.lacks]
HOSTS = ["127.0.0.71", "127.0.0.72", "127.0.0.73"]


async def test_clients_go_on_at_the_next_master(tmp_path: Path, certificate: Certificate) -> None:
    ports = {"listen_port": free_port((1, 2)), "grpcPort": free_port()}
    async with a_set(tmp_path, HOSTS, **ports) as scene:
        await asyncio.to_thread(topics.make, scene.nameserver, CLIENTS, ["hold"])
        endpoints = ";".join(f"{host}:{ports['grpcPort']}" for host in HOSTS)
        programs = Programs(tmp_path / "programs", endpoints, certificate)
        try:
            await do(programs, "hold", "before")
            await scene.kill_the_master()
            await do(programs, "resume", "after")
        finally:
            programs.close()


async def do(programs: Programs, op: str, body: str) -> None:
    """Have the clients send and receive *body*."""
    begun = {client: programs.begin(client, op, "hold") for client in SEVERAL}
    for client, future in begun.items():
        if future is not None:
            messages = await asyncio.to_thread(future.result, ANSWER_TIMEOUT_S)
            assert body in [message["body"] for message in messages], client
