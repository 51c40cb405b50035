"""What is measured, and what it has to reach.

Targets come as ratios, because thousands per second say more about the machine than about the
broker: messages per second over the frames per second of the bare echo in the same run, and over
those of the official Apache broker under the same load.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    title: str
    mode: str
    """What the load generator does; loadgen/loadgen.h lists it."""
    connections: int = 4
    in_flight: int = 64
    body_size_bytes: int = 128
    flood: int = 0
    """Requests that one more connection keeps in flight, which is not measured."""
    topic: str = "LoadTest"
    topics: int = 1
    """Above 1, sends go round so many topics."""
    queues: int = 4
    rate_per_s: float = 0.0
    """Messages per second at most, whatever comes back; 0: as many as are answered."""
    delay_level: int = 3
    with_property: bool = False
    """Whether the messages of a batch have the property that an SQL filter asks for."""
    sync_flush: bool = False
    """Runs against a broker with flushDiskType=SYNC_FLUSH."""
    echo_ratio: float | None = None
    """Messages per second over echo frames per second; None: shown, not judged."""
    peer_ratio: float | None = None
    """Messages per second over those of the Apache broker."""


ECHO = Case("echo", "bare uvloop echo, frames of 200 bytes", "echo", body_size_bytes=200)

CASES = (
    Case("single", "single sends", "single", echo_ratio=0.055, peer_ratio=1.5),
    Case("binary", "single sends, binary headers", "binary"),
    Case("batch", "batches of 32", "batch", echo_ratio=0.22, peer_ratio=1.5),
    Case("pull", "pulls of 32", "pull", echo_ratio=0.7, peer_ratio=1.2),
    Case(
        "sync",
        "single sends, SYNC_FLUSH, 16 x 64",
        "single",
        connections=16,
        sync_flush=True,
        echo_ratio=0.04,
        peer_ratio=1.5,
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
)

PEER_CPU_RATIO_MAX = 0.5
START_SECONDS_MAX = 0.4
IDLE_MEMORY_MB_MAX = 50
STALL_MS_MAX = 20
FLOOD_MS_MAX = 20
"""What p99 of a connection may grow by when another one pipelines without an end."""
