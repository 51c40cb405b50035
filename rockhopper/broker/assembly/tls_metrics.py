"""What /metrics shows of TLS: who speaks it, what failed, and when the certificate ends."""

from collections.abc import Iterator, Mapping

from rockhopper.broker.assembly.families import Family
from rockhopper.broker.listening.listener import Gate


def tls_families(gate: Gate, connections: Mapping[str, int]) -> Iterator[Family]:
    """The metrics of *gate*, if it has TLS; *connections* with it are counted by port."""
    tls = gate.tls
    if tls is None:
        return
    opened = Family("gauge", "rockhopper_tls_connections", "Open connections with TLS", "server")
    for name, count in connections.items():
        opened.add(count, name)
    yield opened
    yield Family(
        "counter", "rockhopper_tls_handshakes_failed_total", "TLS handshakes that failed"
    ).add(tls.handshakes.failures.count)
    yield Family(
        "gauge", "rockhopper_tls_handshakes_under_way", "TLS handshakes that wait or are under way"
    ).add(tls.handshakes.count)
    yield Family(
        "gauge",
        "rockhopper_tls_certificate_expires_seconds",
        "When the certificate ends, in seconds since 1970",
    ).add(tls.expires_at_s)
