"""Makes ``docs/metrics.md`` of the metrics that a broker shows: ``make pages``.

The part of the page above the marker is written by hand and stays.
"""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rockhopper.broker import Broker
from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.metrics.broker_metrics import families
from rockhopper.broker.kernel.metrics.lag_metrics import LagAges
from rockhopper.broker.observing import log
from rockhopper.broker.replication.roles import set_metrics
from rockhopper.broker.servers import tls_families
from rockhopper.broker.supervising.pages import PARENT_FAMILIES

PAGE = Path("docs/metrics.md")
MARKER = "<!-- Made by `make pages`: do not edit below. -->\n"
# By the end of a name, and those of RocketMQ's whose names do not say.
_UNITS = {
    "_seconds": "s",
    "_bytes": "bytes",
    "_ratio": "0 to 1",
    "_seconds_total": "s",
    "_bytes_total": "bytes",
    "rocketmq_consumer_lag_latency": "ms",
    "rocketmq_consumer_queueing_latency": "ms",
    "rocketmq_pop_revive_latency": "ms",
    "rocketmq_rpc_latency": "ms",
    "rocketmq_storage_message_reserve_time": "ms",
    "rocketmq_storage_size": "bytes",
    "rocketmq_timer_dequeue_latency": "ms",
    "rocketmq_throughput_in_total": "bytes",
    "rocketmq_throughput_out_total": "bytes",
}
_CLASSES = {
    "rocketmq_storage": "DefaultStoreMetricsConstant",
    "rocketmq_timer": "DefaultStoreMetricsConstant",
    "rocketmq_pop": "PopMetricsConstant",
    "rocketmq_rpc": "RemotingMetrics",
}
_LIKE = {
    "rockhopper_timers_pending": "rocketmq_timing_messages, by topic",
}


async def of_a_broker() -> list[Family]:
    """What every broker shows that serves."""
    async with Broker.temporary() as broker:
        shown = families(
            broker.kernel,
            broker.features.values(),
            broker.metrics_page.stalls,
            broker.servers.connection_counts(),
            LagAges(),
            is_ready=True,
        )
        return [family for family in shown if family is not None]


def of_a_replica() -> list[Family]:
    """What a replica of a set shows besides."""
    machine = cast(Any, _machine())
    health = cast(Any, SimpleNamespace(silent_ms=0, renewal_ms=0, unknown_count=0))
    return [
        *set_metrics.of_set(machine, 0),
        *set_metrics.of_followers(machine, float),
        *set_metrics.of_engine(health),
        set_metrics.of_clock(0),
        *set_metrics.of_past({}, {}),
        set_metrics.of_alarms({}),
    ]


def of_tls() -> list[Family]:
    """What a broker with TLS shows besides."""
    handshakes = SimpleNamespace(failures=SimpleNamespace(count=0), count=0)
    gate = SimpleNamespace(tls=SimpleNamespace(handshakes=handshakes, expires_at_s=0))
    return list(tls_families(cast(Any, gate), {}))


def of_a_parent() -> list[Family]:
    """What the parent of several brokers shows of them."""
    return [Family(*each) for each in PARENT_FAMILIES]


def _machine() -> SimpleNamespace:
    replica_state = SimpleNamespace(me=0, log_start=0, log_end=0)
    return SimpleNamespace(view=None, role=None, term=None, replica_state=replica_state)


def generated() -> str:
    """What stands below the marker."""
    parts = (
        ("Every broker", asyncio.run(of_a_broker())),
        ("With TLS", of_tls()),
        ("A replica of a set", of_a_replica()),
        ("Several brokers of one start (`brokers=N`)", of_a_parent()),
    )
    return "\n".join(line for title, shown in parts for line in _table(title, shown))


def _table(title: str, shown: Iterable[Family]) -> Iterable[str]:
    yield f"## {title}\n"
    yield "| metric | type | labels | unit | what it says | in RocketMQ |"
    yield "|---|---|---|---|---|---|"
    for family in shown:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield (
            f"| `{family.name}` | {family.kind} | {labels} | {_unit(family.name)} "
            f"| {family.help_text} | {_apache(family.name)} |"
        )
    yield ""


def _unit(name: str) -> str:
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def _apache(name: str) -> str:
    if not name.startswith("rocketmq_"):
        return _LIKE.get(name, "")
    found = (each for start, each in _CLASSES.items() if name.startswith(start))
    return f"the same ({next(found, 'BrokerMetricsConstant')})"


def page(current: str) -> str:
    """*current* with what is generated made anew."""
    return current.partition(MARKER)[0] + MARKER + "\n" + generated()


def main() -> int:
    """Write the page."""
    log.configure("error")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
