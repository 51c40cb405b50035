"""The real daemon delivers an hour of timers while libfaketime runs its clock faster.

``ROCKHOPPER_TIME_RATE`` says how much faster, 60 unless set. What is printed of lateness tells of
the daemon only on a machine that is not busy: at that rate a simulated second is 17 ms, and the
daemon may wait longer than that for a processor. How long it did is printed too.
"""

import os
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.daemon import Daemon
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import RawPeer, request
from tests.support.wire import WireClient

LIBRARY = next(Path("/usr").glob("lib*/*/faketime/libfaketimeMT.so.1"), None)
RATE = float(os.environ.get("ROCKHOPPER_TIME_RATE", "60"))
COUNT = 100_000
HOUR_MS = 3_600_000
LEAD_S = 30.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime (the package faketime)"),
    pytest.mark.skipif(
        "ROCKHOPPER_TIME_RATE" not in os.environ,
        reason="holds the machine against a clock: make test-timers, where nothing runs beside it",
    ),
]


@dataclass
class Clock:
    """The clock that each life of the daemon goes on with."""

    began_s: float = field(default_factory=time.time)

    @property
    def now_ms(self) -> float:
        return (self.began_s + (time.time() - self.began_s) * RATE) * 1000

    def environment(self) -> dict[str, str]:
        now = datetime.fromtimestamp(self.now_ms / 1000, UTC)
        return {
            "LD_PRELOAD": str(LIBRARY),
            "TZ": "UTC",
            "FAKETIME": f"@{now:%Y-%m-%d %H:%M:%S.%f} x{RATE:g}",
        }


async def send_timers(address: str, due_ms: dict[bytes, int]) -> None:
    bodies = list(due_ms)
    async with RawPeer(address) as peer:
        for start in range(0, len(bodies), 100):
            chosen = bodies[start : start + 100]
            for number, body in enumerate(chosen):
                properties = {"TIMER_DELIVER_MS": str(due_ms[body])}
                fields = send_fields("orders") | {"properties": encode_properties(properties)}
                peer.send(request(RequestCode.SEND_MESSAGE, fields, body, opaque=number))
            assert {answer.code for answer in await peer.answers(len(chosen))} == {0}


async def collect(daemon: Daemon, found: list[StoredMessage], count: int) -> None:
    """Pull what is delivered, until there are *count* of it."""
    async with WireClient(daemon.address) as client:
        while len(found) < count:
            fields = pull_fields("orders", len(found), suspend_ms=15_000)
            answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
            if answer.code == 0:
                found += decode_messages(answer.body)


def waited_s(daemon: Daemon) -> float:
    """How long the daemon's threads have waited for a processor."""
    tasks = Path(f"/proc/{daemon.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[1]) for task in tasks) / 1e9


async def test_an_hour_of_timers_is_delivered_across_two_kills(tmp_path: Path) -> None:
    """None is lost, none comes twice, none early."""
    clock = Clock()
    dice = random.Random(1)
    first_ms = int(clock.now_ms + LEAD_S * RATE * 1000)
    due_ms = {b"%d" % number: first_ms + dice.randrange(HOUR_MS) for number in range(COUNT)}
    found: list[StoredMessage] = []
    # What became due then is as late as the daemon was away, or as its sender was slow.
    excused_ms: list[tuple[float, float]] = []
    waits_s = []
    for life in (1, 2, 3):
        down_ms = clock.now_ms
        async with Daemon(tmp_path, environment=clock.environment()) as daemon:
            if life == 1:
                await send_timers(daemon.address, due_ms)
            excused_ms.append((down_ms - 1000, clock.now_ms))
            await collect(daemon, found, COUNT * life // 3)
            waits_s.append(waited_s(daemon))
            await daemon.kill()
    assert sorted(message.body for message in found) == sorted(due_ms)
    assert all(message.store_time_ms >= due_ms[message.body] for message in found)
    late_ms = [
        message.store_time_ms - due
        for message in found
        if not any(start <= (due := due_ms[message.body]) <= end for start, end in excused_ms)
    ]
    print(
        f"x{RATE:g}: {sum(late > 1000 for late in late_ms):,} of {len(late_ms):,} over 1 s late, "
        f"at most {max(late_ms, default=0):,} ms simulated; "
        f"the daemon waited {sum(waits_s):.1f} s for a processor"
    )
