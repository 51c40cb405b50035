"""The families of numbers in /metrics, and their output in Prometheus' text format.

A thread imports prometheus_client (40 ms) and writes the text. Collecting the numbers yields to the
event loop in between.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain

from rockhopper.broker.server.loop.latencies import BOUNDS_S, Latencies
from rockhopper.broker.settings.broker_config import BrokerConfig

SAMPLES_PER_TURN = 500
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_SPECIAL = frozenset('\\\n"')


class Family:
    """One metric: its samples are (label values, number)."""

    def __init__(self, kind: str, name: str, help_text: str, *labels: str) -> None:
        self.kind = kind
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self.samples: list[tuple[tuple[str, ...], float]] = []
        self.histograms: list[tuple[tuple[str, ...], list[tuple[str, float]], float]] = []

    def add_sample(self, value: float, *labels: str) -> "Family":
        """Add one number."""
        self.samples.append((labels, value))
        return self

    def observe(
        self,
        times: Latencies,
        *labels: str,
        bounds_s: Sequence[float] = BOUNDS_S,
        per_second: int = 1,
    ) -> "Family":
        """Add a histogram with the bounds *bounds_s*, of BOUNDS_S; its unit is 1/*per_second* s."""
        at_most = dict(zip(BOUNDS_S, accumulate(times.counts), strict=False))
        buckets = [(repr(bound * per_second), float(at_most[bound])) for bound in bounds_s]
        buckets.append(("+Inf", float(sum(times.counts))))
        self.histograms.append((labels, buckets, times.sum_s * per_second))
        return self


def gauge(name: str, help_text: str, *labels: str) -> Family:
    """Return a family of numbers that go up and down."""
    return Family("gauge", name, help_text, *labels)


def counter(name: str, help_text: str, *labels: str) -> Family:
    """Return a family of numbers that only grow."""
    return Family("counter", name, help_text, *labels)


def histogram(name: str, help_text: str, *labels: str) -> Family:
    """Return a family of distributions."""
    return Family("histogram", name, help_text, *labels)


async def render(config: BrokerConfig, families: Iterable[Family | None]) -> tuple[bytes, str]:
    """Return the page for Prometheus, and its content type.

    At each None among *families*, the event loop can do other work.
    """
    shown = []
    for family in families:
        if family is None:
            await asyncio.sleep(0)
        else:
            shown.append(family)
    common = {
        "cluster": config.cluster_name,
        "node_id": node_id(config),
        "node_type": "broker",
    }
    return await asyncio.to_thread(_render, shown, common)


def node_id(config: BrokerConfig) -> str:
    """Return RocketMQ's node id: the broker name.

    A replica appends its id, because the name is shared.
    """
    replica_id = config.replication.replica_id if config.replication.engine else 0
    return f"{config.broker_name}:{replica_id}" if replica_id else config.broker_name


def _render(families: Iterable[Family], common: dict[str, str]) -> tuple[bytes, str]:
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY
    from prometheus_client.exposition import generate_latest

    text = "".join(chain.from_iterable(_lines(family, common) for family in families))
    # The default registry adds the process's own numbers (memory, processor time, open files).
    return text.encode() + generate_latest(REGISTRY), CONTENT_TYPE_LATEST


def _lines(family: Family, common: dict[str, str]) -> Iterator[str]:
    """Format a family as text.

    The library's objects for each sample would take ten times as long.
    """
    name = family.name
    yield f"# HELP {name} {family.help_text}\n# TYPE {name} {family.kind}\n"
    plain = _pattern(common, family.labels)
    for labels, value in family.samples:
        yield f"{name}{plain % _escape(labels)} {float(value)!r}\n"
    bounded = _pattern(common, (*family.labels, "le"))
    for labels, buckets, total in family.histograms:
        for end, count in buckets:
            yield f"{name}_bucket{bounded % _escape((*labels, end))} {count!r}\n"
        yield f"{name}_count{plain % _escape(labels)} {buckets[-1][1]!r}\n"
        yield f"{name}_sum{plain % _escape(labels)} {total!r}\n"


def _pattern(common: dict[str, str], labels: tuple[str, ...]) -> str:
    """Return braces with all labels, the common ones first, and placeholders for *labels*."""
    pairs = [
        f'{label}="{_escape((value,))[0]}"'.replace("%", "%%") for label, value in common.items()
    ]
    return "{" + ",".join([*pairs, *(f'{label}="%s"' for label in labels)]) + "}"


def _escape(values: tuple[str, ...]) -> tuple[str, ...]:
    if _SPECIAL.isdisjoint("".join(values)):
        return values
    return tuple(value.translate(_ESCAPES) for value in values)
