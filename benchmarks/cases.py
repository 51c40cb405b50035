"""The cases and their targets.

Targets are ratios, because absolute rates say more about the machine than about the broker. A
case's messages per second are divided by the frames per second of a bare echo in the same run, and
by the messages per second of the official Apache broker under the same load. The shape of a case is
its number of connections and of requests in flight on each. Its echo has the same shape if ECHOES
has one, and else that of the base.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of a case; None: shown but not judged. Ratios are ours over the other's."""

    peer_ratio: float | None = None
    """The minimum of messages per second over those of the Apache broker."""
    cpu_ratio: float | None = None
    """The maximum of CPU time per message over that of the Apache broker."""
    echo_ratio: float | None = None
    """The minimum of messages per second over echo frames per second."""
    p50_ratio: float | None = None
    """The maximum of latency over that of the Apache broker, as for the next field."""
    p99_ratio: float | None = None
    base_cpu_ratio: float | None = None
    """The maximum of CPU time per message over that of the table's base."""


SETUPS = {
    "async": {"flushDiskType": "ASYNC_FLUSH"},
    "sync": {"flushDiskType": "SYNC_FLUSH"},
    # 10,000 queues reserve 60 GB at the default size, and 6 GB at this size.
    "small-files": {"flushDiskType": "ASYNC_FLUSH", "mappedFileSizeConsumeQueue": "600000"},
    "users": {
        "flushDiskType": "ASYNC_FLUSH",
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
    },
}
"""The settings of the brokers, the same for ours and for the peer."""
OURS_ALONE = {"users"}
"""The setups that the peer is not measured with."""

NONE = Targets()
SENDS = Targets(peer_ratio=5, cpu_ratio=0.12, echo_ratio=0.17)
SPREAD = Targets(base_cpu_ratio=1.3)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    title: str
    mode: str
    """The load generator's mode; loadgen/loadgen.h lists them."""
    connections: int = 4
    in_flight: int = 64
    body_size_bytes: int = 128
    messages_per_request: int = 32
    """Of batches, pulls and pops."""
    flood: int = 0
    """The number of requests that an additional, unmeasured connection keeps in flight."""
    topic: str = "LoadTest"
    topics: int = 1
    """Above 1, sends cycle through this number of topics."""
    queues: int = 4
    rate_per_s: float = 0.0
    """The maximum of messages per second, regardless of answers; 0: as many as are answered."""
    delay_level: int = 3
    with_property: bool = False
    """Whether the messages of a batch have the property that an SQL filter tests."""
    setup: str = "async"
    """The settings of the brokers, a key of SETUPS."""
    half_of: str = ""
    """The case whose peer rate is halved and used as this case's rate; skipped without a peer."""
    axis: str = ""
    """The axis of the table on which the case differs from the base."""
    targets: Targets = NONE

    @property
    def echo(self) -> str:
        """The name of the echo to which its messages per second are compared."""
        name = f"echo-{self.connections}x{self.in_flight}"
        return name if name in {echo.name for echo in ECHOES} else ECHO.name


ECHO = Case("echo", "bare uvloop echo, frames of 200 bytes", "echo", body_size_bytes=200)
ECHOES = (
    ECHO,
    *(
        Case(
            f"echo-{connections}x{in_flight}",
            f"bare uvloop echo, {connections:,} x {in_flight}",
            "echo",
            connections,
            in_flight,
            body_size_bytes=200,
        )
        for connections, in_flight in ((1, 1), (16, 1), (100, 1), (1000, 1), (100, 4))
    ),
)

HUNDRED = Targets(peer_ratio=2.5, echo_ratio=0.42)
FEW_IN_FLIGHT = (
    Case("16x1", "single sends, 16 x 1", "single", 16, 1, targets=Targets(echo_ratio=0.33)),
    Case("100x1", "single sends, 100 x 1", "single", 100, 1, targets=HUNDRED),
    Case(
        "100x1-binary", "single sends, 100 x 1, binary headers", "binary", 100, 1, targets=HUNDRED
    ),
    Case("100x1-sync", "single sends, 100 x 1, SYNC_FLUSH", "single", 100, 1, setup="sync"),
    Case("100x1-batch", "batches of 32, 100 x 1", "batch", 100, 1),
    Case("100x1-pull", "pulls of 32, 100 x 1", "pull", 100, 1),
    Case("100x1-pull-1", "pulls of 1, 100 x 1", "pull", 100, 1, messages_per_request=1),
    Case("100x1-signed", "single sends, 100 x 1, signed", "single", 100, 1, setup="users"),
    Case("1000x1", "single sends, 1,000 x 1", "single", 1000, 1, targets=Targets(echo_ratio=0.38)),
    Case("100x4", "single sends, 100 x 4", "single", 100, 4),
)
"""Connections of which each has few requests in flight, as those of services do."""

CASES = (
    Case("single", "single sends", "single", targets=SENDS),
    Case("binary", "single sends, binary headers", "binary", targets=SENDS),
    Case("v1", "single sends, long field names", "v1", targets=SENDS),
    Case("oneway", "oneway sends", "oneway", targets=SENDS),
    Case(
        "half",
        "single sends at half of the peer's rate",
        "single",
        half_of="single",
        targets=Targets(p50_ratio=0.25, p99_ratio=0.15),
    ),
    Case(
        "batch",
        "batches of 32",
        "batch",
        targets=Targets(peer_ratio=4, cpu_ratio=0.12, echo_ratio=0.9),
    ),
    Case(
        "pull",
        "pulls of 32",
        "pull",
        targets=Targets(peer_ratio=2, cpu_ratio=0.25, echo_ratio=1.3),
    ),
    # Two requests per message, so an echo of one frame is no measure of it.
    Case(
        "longpull",
        "parked pulls of one, and their sends",
        "longpull",
        topic="LoadTestWide",
        targets=Targets(peer_ratio=2, cpu_ratio=0.25),
    ),
    Case(
        "pop", "pops of 32, each acknowledged", "pop", connections=16, targets=Targets(peer_ratio=2)
    ),
    Case(
        "sql",
        "pulls of 32 by SQL92",
        "sql",
        topic="LoadTestSql",
        with_property=True,
        targets=Targets(peer_ratio=2),
    ),
    Case("commit", "commits of offsets", "commit", targets=Targets(peer_ratio=2)),
    Case("transaction", "half messages, committed", "transaction", targets=Targets(peer_ratio=2)),
    Case(
        "sync",
        "single sends, SYNC_FLUSH, 16 x 64",
        "single",
        connections=16,
        setup="sync",
        targets=Targets(peer_ratio=4, cpu_ratio=0.15, echo_ratio=0.12),
    ),
    Case("alone", "one send at a time", "single", connections=1, in_flight=1),
    Case(
        "flooded",
        "one send at a time beside a flood",
        "single",
        connections=1,
        in_flight=1,
        flood=20_000,
    ),
    # Two hours: none is delivered while other cases are measured.
    Case("delay", "sends with a delay", "delay", delay_level=18, targets=Targets(peer_ratio=2)),
    *FEW_IN_FLIGHT,
)
BASE = CASES[0]

# One axis at a time from the base, whose cell is BASE itself: 128 bytes, 4 connections, 1 topic.
TABLE = (
    *(
        Case(f"body-{size}", title, "single", body_size_bytes=size, axis="body")
        for size, title in ((1 << 10, "1 KiB"), (16 << 10, "16 KiB"), (1 << 20, "1 MiB"))
    ),
    Case("connections-1", "1 connection", "single", connections=1, axis="connections"),
    Case("connections-64", "64 connections", "single", connections=64, axis="connections"),
    # Apache's broker refuses requests above 10,000 in its queue.
    Case(
        "connections-1000",
        "1,000 connections x 8",
        "single",
        connections=1000,
        in_flight=8,
        axis="connections",
        targets=SPREAD,
    ),
    Case("topics-16", "16 topics", "single", topics=16, queues=1, axis="topics"),
    Case(
        "topics-10000",
        "10,000 topics",
        "single",
        topics=10_000,
        queues=1,
        setup="small-files",
        axis="topics",
        targets=SPREAD,
    ),
)

START_SECONDS_MAX = 0.4
START_RATIO_MAX = 2.5
"""Of the start to that of an interpreter that imports the broker's libraries."""
IDLE_MEMORY_MB_MAX = 50
STALL_MS_MAX = 20
FLOOD_MS_MAX = 20
"""The permitted growth of a connection's p99 while another one pipelines without end."""
ALONE_US_MAX = 12
"""The permitted p50 of one send at a time above that of the echo."""
GROUP_BYTES = 34_100
"""The size of the records of 100 single sends, one for each connection."""
GROUP_COMMIT_RATIO_MIN = 0.8
"""Of the messages per second of 100 x 1 with SYNC_FLUSH over those if 100 shared one fdatasync."""
