"""The compose file, for real: built, started, used from the host and from a container, stopped."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio  # type: ignore[import-untyped, unused-ignore]
import pytest

from rockhopper.client import Message, Producer
from tests.extras.test_grpc import ask
from tests.support.free_ports import free_ports
from tests.support.grpc_client import request, sending

ROOT = Path(__file__).parents[2]
DOCKER = os.environ.get("DOCKER", "docker")

pytestmark = pytest.mark.docker


def why_not() -> str | None:
    """Say why there is no engine to test with."""
    if shutil.which(DOCKER) is None:
        return f"there is no {DOCKER}"
    answer = subprocess.run([DOCKER, "info"], capture_output=True, text=True, timeout=60)
    return f"no Docker engine answers: {answer.stderr.strip()}" if answer.returncode else None


class Compose:
    """The compose file under a project name and on host ports of its own."""

    def __init__(self, project: str, ports: list[int]) -> None:
        """*ports* are those of broker, name server, pages and 5.x clients."""
        self.project = project
        self.network = f"{project}_default"
        self.image = f"{project}-image"
        self.published = f"127.0.0.1:{ports[0]}"
        self.nameserver = f"127.0.0.1:{ports[1]}"
        self.grpc = f"127.0.0.1:{ports[3]}"
        self._environment = {
            **os.environ,
            "DOCKER": DOCKER,
            "COMPOSE_PROJECT_NAME": project,
            "ROCKHOPPER_IMAGE": self.image,
            "ROCKHOPPER_BROKER_PORT": str(ports[0]),
            "ROCKHOPPER_NAMESRV_PORT": str(ports[1]),
            "ROCKHOPPER_HTTP_PORT": str(ports[2]),
            "ROCKHOPPER_GRPC_PORT": str(ports[3]),
        }

    def run(self, *arguments: str) -> str:
        """Run docker/compose.sh; its output goes into the failure message."""
        command = [str(ROOT / "docker/compose.sh"), *arguments]
        return output_of(command, self._environment)

    def container(self) -> str:
        """Return the broker's container, running or not."""
        return self.run("ps", "-q", "broker").strip()

    def on_the_host(self, *arguments: str) -> list[Any]:
        """Run the command line on the host; return what it printed as JSON."""
        command = [
            sys.executable,
            "-m",
            "rockhopper.client",
            *arguments,
            "--nameserver",
            self.nameserver,
        ]
        return [json.loads(line) for line in output_of([*command, "--json"]).splitlines()]

    def in_another_container(self, *arguments: str) -> list[Any]:
        """Run the command line in a container beside the broker."""
        output = docker(
            *("run", "--rm", "--network", self.network, "--entrypoint", "rockhopper", self.image),
            *(*arguments, "--nameserver", "broker:9876", "--json"),
        )
        return [json.loads(line) for line in output.splitlines()]

    def bodies_in_another_container(self, topic: str) -> list[str]:
        """Pull everything in *topic* from beside the broker; return the bodies."""
        pull = ("pull", topic, "--from", "earliest", "--max", "1000")
        return sorted(message["body"] for message in self.in_another_container(*pull))


def output_of(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run *command* and return what it printed; fail with everything it said."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def docker(*arguments: str) -> str:
    """Run the Docker client."""
    return output_of([DOCKER, *arguments])


def send_from_the_host(nameserver: str, topic: str, bodies: list[str]) -> None:
    """Send with the client library, as a program outside the containers would."""

    async def send() -> None:
        async with Producer(nameserver=nameserver) as producer:
            for body in bodies:
                await producer.send(Message(topic, body.encode()))

    asyncio.run(send())


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    """Bring the file up, and take everything of it away at the end."""
    if reason := why_not():
        pytest.skip(reason)
    compose = Compose(f"rockhopper-test-{os.getpid()}", free_ports(4))
    try:
        compose.run("up")
        yield compose
    finally:
        compose.run("down", "--volumes", "--remove-orphans")
        docker("image", "rm", "--no-prune", compose.image)


def test_health_check_finds_the_broker_healthy(compose: Compose) -> None:
    check = json.loads(docker("inspect", "-f", "{{json .Config.Healthcheck}}", compose.container()))
    assert check["Test"] == ["CMD", "rockhopper-healthy"]
    assert docker("exec", compose.container(), "rockhopper-healthy") == ""
    elsewhere = "ROCKHOPPER_HTTPPORT=9876"
    with pytest.raises(AssertionError):
        docker("exec", "--env", elsewhere, compose.container(), "rockhopper-healthy")


def test_image_adds_little_to_its_base(compose: Compose) -> None:
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", dockerfile, re.MULTILINE)
    sizes = [
        int(docker("image", "inspect", "-f", "{{.Size}}", name)) for name in (compose.image, base)
    ]
    assert sizes[0] - sizes[1] <= 60_000_000


def test_broker_does_not_run_as_root(compose: Compose) -> None:
    assert docker("exec", compose.container(), "id", "-u").strip() == "10001"


def test_host_is_told_the_published_port(compose: Compose) -> None:
    (broker,) = compose.on_the_host("cluster")
    assert broker["address"] == compose.published


def test_neighbour_container_is_told_the_brokers_own_address(compose: Compose) -> None:
    address = docker(
        *("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"),
        compose.container(),
    )
    (broker,) = compose.in_another_container("cluster")
    assert broker["address"] == f"{address.strip()}:10911"


def test_message_from_the_host_is_pulled_by_another_container(compose: Compose) -> None:
    send_from_the_host(compose.nameserver, "host-to-container", ["hello", "world"])
    assert compose.bodies_in_another_container("host-to-container") == ["hello", "world"]


def test_a_5x_client_on_the_host_is_told_the_published_port(compose: Compose) -> None:
    compose.on_the_host("topic", "create", "from-5x")

    async def talk() -> str:
        async with grpc.aio.insecure_channel(compose.grpc) as channel:
            asked = request("QueryRoute", topic="from-5x")
            asked.endpoints.scheme = 1
            asked.endpoints.addresses.add(host="127.0.0.1", port=int(compose.grpc.split(":")[1]))
            route = await ask(channel, "QueryRoute", asked)
            await ask(channel, "SendMessage", sending("from-5x", b"hello"))
            (address,) = route.message_queues[0].broker.endpoints.addresses
            return f"{address.host}:{address.port}"

    assert asyncio.run(talk()) == compose.grpc
    assert compose.bodies_in_another_container("from-5x") == ["hello"]


def test_command_line_in_the_brokers_own_container_reaches_it(compose: Compose) -> None:
    docker("exec", compose.container(), "rockhopper", "send", "from-inside", "hello")
    assert compose.bodies_in_another_container("from-inside") == ["hello"]


def test_host_may_administrate(compose: Compose) -> None:
    compose.on_the_host("topic", "create", "made-by-the-host", "--queues", "2")
    send_from_the_host(compose.nameserver, "made-by-the-host", ["hello"])
    assert compose.bodies_in_another_container("made-by-the-host") == ["hello"]


def test_messages_survive_stop_removal_and_a_new_container(compose: Compose) -> None:
    send_from_the_host(compose.nameserver, "orders", [f"order {number}" for number in range(10)])
    compose.run("stop")
    container = compose.run("ps", "-aq", "broker").strip()
    assert docker("inspect", "-f", "{{.State.ExitCode}}", container).strip() == "0"
    compose.run("down")
    compose.run("up")
    expected = [f"order {number}" for number in range(10)]
    assert compose.bodies_in_another_container("orders") == expected


def test_kill_costs_no_message_that_was_acknowledged(compose: Compose) -> None:
    send_from_the_host(compose.nameserver, "killed", [f"order {number}" for number in range(10)])
    compose.run("kill")
    compose.run("up")
    assert len(compose.bodies_in_another_container("killed")) == 10
