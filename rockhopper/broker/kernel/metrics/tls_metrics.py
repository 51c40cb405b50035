"""TLS in /metrics: connections, failed handshakes, and the expiry of the certificate."""

from collections.abc import Iterator, Mapping

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.server.listening.listener import Gate


def tls_families(gate: Gate, connections: Mapping[str, int]) -> Iterator[Family]:
    """Yield the metrics of *gate* if it has TLS; TLS *connections* are counted by port."""
    tls = gate.tls
    if tls is None:
        return
    opened = Family("gauge", "rockhopper_tls_connections", "Open TLS connections", "server")
    for name, count in connections.items():
        opened.add_sample(count, name)
    yield opened
    yield Family(
        "counter", "rockhopper_tls_handshakes_failed_total", "Failed TLS handshakes"
    ).add_sample(tls.handshakes.failures.count)
    yield Family(
        "gauge", "rockhopper_tls_handshakes_under_way", "TLS handshakes in progress or waiting"
    ).add_sample(tls.handshakes.count)
    yield Family(
        "gauge",
        "rockhopper_tls_certificate_expires_seconds",
        "Expiry time of the certificate, as a Unix time",
    ).add_sample(tls.expires_at_s)
