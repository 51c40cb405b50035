"""The recipe of docs/tls.md makes certificates that every supported Python accepts."""

import re
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from rockhopper import Broker, Producer
from rockhopper.client.network.tls import TlsOptions

PAGE = Path(__file__).parents[2] / "docs" / "tls.md"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A directory in which the commands of the page were run."""
    _, _, rest = PAGE.read_text().partition("## A CA and certificates with openssl\n")
    lines = re.findall(r"^    (.*)$", rest.partition("\n## ")[0], re.MULTILINE)
    subprocess.run(["sh", "-ec", "\n".join(lines)], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask of certificates what CPython 3.13 asks."""
    make = ssl.create_default_context

    def make_strict(*args: object, **options: object) -> ssl.SSLContext:
        context = make(*args, **options)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", make_strict)


async def test_a_client_accepts_the_certificate_of_the_recipe(made: Path) -> None:
    settings = {"tlsCertPath": str(made / "broker.pem"), "tlsKeyPath": str(made / "broker.key")}
    async with (
        Broker.temporary(settings) as broker,
        Producer(broker.nameserver, tls=TlsOptions(ca=made / "ca.pem")) as producer,
    ):
        assert (await producer.send("orders", b"hello")).queue_offset == 0


async def test_a_client_accepts_the_certificate_for_development() -> None:
    async with Broker.temporary({"tlsServerMode": "permissive"}) as broker:
        certificate = broker.config.store.root / "config" / "tls" / "certificate.pem"
        async with Producer(broker.nameserver, tls=TlsOptions(ca=certificate)) as producer:
            assert (await producer.send("orders", b"hello")).queue_offset == 0
