"""Latencies in /metrics: of requests by code and answer, of sends, pulls and flushes."""

from collections.abc import Iterator

from rockhopper.broker.kernel.families import Family, histogram
from rockhopper.broker.server.loop.latencies import PULLS, SENDS, Latencies, RequestTimes

RPC_BOUNDS_S = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0)
"""The bounds that RocketMQ uses."""


def latency_families(times: RequestTimes, flushes: Latencies) -> Iterator[Family]:
    """Yield the histograms; there is one series for each kind of request and answer seen so far."""
    rpc = histogram(
        "rocketmq_rpc_latency",
        "From reading a request to writing its answer",
        *("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    )
    for kind, taken in times.rows():
        waited = "true" if kind.has_waited else "false"
        result = "oneway" if kind.is_oneway else "success"
        values = (kind.protocol, kind.request, kind.response, waited, result)
        rpc.observe(taken, *values, bounds_s=RPC_BOUNDS_S, per_second=1000)
    yield rpc
    for name, help_text, taken in (
        ("send", "From reading a send, or a batch, to writing its answer", times.combine(SENDS)),
        (
            "pull",
            "From reading a pull that finds messages at once to writing its answer",
            times.combine(PULLS),
        ),
        ("flush", "Flushes of the commit log that wrote something", flushes),
    ):
        yield histogram(f"rockhopper_{name}_latency_seconds", help_text).observe(taken)
