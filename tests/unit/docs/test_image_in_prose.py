"""What pages say of the container image is what its files do."""

import re

from rockhopper.broker.settings.config_file import load_config
from tests.support.prose import ROOT, Page, page

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
CONTAINERS = page(ROOT / "docs/operations/containers.md")
SECURITY = page(ROOT / "docs/security.md")
IMAGE = load_config(ROOT / "docker/broker.conf").config


def joined(of: Page) -> str:
    """The text of a page without its line ends."""
    return " ".join(of.text.split())


def told(what: str) -> str:
    """The row of that name in the table of the page on containers."""
    (cell,) = [
        cells[1] for table in CONTAINERS.tables() for _, cells in table.rows if cells[0] == what
    ]
    return cell


def test_users_are_on_in_the_image_and_off_without_it() -> None:
    assert IMAGE.auth.authentication_enabled
    assert IMAGE.auth.generates_user
    assert not IMAGE.auth.authorization_enabled
    assert not IMAGE.remote_admin
    assert IMAGE.bind_address == "0.0.0.0"
    text = joined(SECURITY)
    assert "listens on all addresses of its container and serves [users only]" in text
    assert "with the Super user `admin` that the first start creates" in text
    plain = load_config().config
    assert not plain.auth.authentication_enabled
    assert plain.bind_address == "127.0.0.1"
    assert "`rockhopper-broker` without settings listens on loopback" in text


def test_what_turns_users_off_in_the_image_does() -> None:
    given = dict(re.findall(r"-e (ROCKHOPPER_[A-Z_]+)=(true|false)", joined(CONTAINERS)))
    opened = load_config(ROOT / "docker/broker.conf", given).config
    assert (opened.auth.authentication_enabled, opened.remote_admin) == (False, True)
    for name in ("docker-compose.yml", "docker-compose.ha.yml"):
        text = (ROOT / "docker" / name).read_text(encoding="utf-8")
        assert 'ROCKHOPPER_AUTHENTICATION_ENABLED: "false"' in text
    assert "`make compose-up` and `make compose-ha-up` start it without users" in joined(SECURITY)


def test_compose_publishes_on_this_host_alone() -> None:
    single = (ROOT / "docker/docker-compose.yml").read_text(encoding="utf-8")
    ports = re.findall(r'^ +- "(.*):\d+"$', single, re.MULTILINE)
    assert len(ports) > 3
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert "ports:" not in (ROOT / "docker/docker-compose.ha.yml").read_text(encoding="utf-8")


def test_ports_user_and_volume_are_those_of_the_dockerfile() -> None:
    exposed = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)[0].split()
    assert re.findall(r"\b\d{4,5}\b", told("ports")) == exposed
    assert {str(IMAGE.listen_port), str(IMAGE.http_port), str(IMAGE.grpc_port)} <= set(exposed)
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert told("user").startswith(f"{user}, never root")
    assert f"must belong to user {user}" in told("volume")
    assert told("volume").startswith(f"`{IMAGE.store.root}`")
    assert f"VOLUME {IMAGE.store.root}" in DOCKERFILE
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert told("base") == f"`{base}`"
