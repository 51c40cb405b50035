"""What /metrics shows of TLS."""

from pathlib import Path

from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.listening.tls import Tls, TlsFiles
from rockhopper.broker.servers import tls_families
from tests.support.certificates import Authority


def test_without_tls_there_is_nothing_to_show() -> None:
    assert list(tls_families(OPEN, {"broker": 0})) == []


def test_connections_failures_and_the_end_of_the_certificate_are_shown(tmp_path: Path) -> None:
    tls = Tls(TlsFiles(*Authority(tmp_path).issue()))
    tls.handshakes.failures.count_one("peer", "a reason")
    shown = {each.name: each.samples for each in tls_families(Gate(tls), {"broker": 3})}
    assert shown["rockhopper_tls_connections"] == [(("broker",), 3)]
    assert shown["rockhopper_tls_handshakes_failed_total"] == [((), 1)]
    assert shown["rockhopper_tls_certificate_expires_seconds"] == [((), tls.expires_at_s)]
