"""The set of docker-compose.ha.yml, for real: any of its containers may be killed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.client import Producer, PullConsumer
from tests.docker.test_compose import DOCKER, docker, output_of, why_not

ROOT = Path(__file__).parents[2]
# Not the default: a set that somebody runs here stays as it is.
NETWORK = "10.89.78"
NAMES = ";".join(f"{NETWORK}.{number}:9876" for number in (21, 22, 23))
PROJECT = f"rockhopper-test-{os.getpid()}"
CONTAINERS = ("broker1", "broker2", "broker3", "etcd1", "etcd2", "etcd3")

pytestmark = pytest.mark.docker


def compose(*arguments: str) -> None:
    environment = {
        **os.environ,
        "DOCKER": DOCKER,
        "COMPOSE_PROJECT_NAME": PROJECT,
        "ROCKHOPPER_IMAGE": f"{PROJECT}-image",
        "ROCKHOPPER_ETCD_IMAGE": f"{PROJECT}-etcd",
        "ROCKHOPPER_NETWORK": NETWORK,
    }
    output_of([str(ROOT / "docker/compose.sh"), "ha", *arguments], environment)


@pytest.fixture(scope="module", autouse=True)
def up() -> Iterator[None]:
    if reason := why_not():
        pytest.skip(reason)
    try:
        compose("up")
        yield
    finally:
        compose("down", "--volumes", "--remove-orphans")
        docker("image", "rm", "--no-prune", f"{PROJECT}-image", f"{PROJECT}-etcd")


def container_of(service: str) -> str:
    """The name under which compose runs a service, in v1 or v2."""
    names = docker("ps", "--all", "--format", "{{.Names}}").split()
    wanted = f"{PROJECT}_ha_{service}_1".replace("-", "_")
    return next(name for name in names if name.replace("-", "_") == wanted)


async def test_any_one_container_may_be_killed() -> None:
    sent = 0
    async with Producer(nameserver=NAMES) as producer:
        for service in CONTAINERS:
            docker("kill", container_of(service))
            for _ in range(50):
                await producer.send("orders", b"%d" % sent, timeout_s=30)
                sent += 1
            docker("start", container_of(service))
            compose("up")
    found: set[bytes] = set()
    async with PullConsumer("orders", nameserver=NAMES) as consumer:
        while len(found) < sent:
            found |= {message.body for message in await consumer.pull()}
