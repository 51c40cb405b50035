"""A store in the middle of every interaction that the broker makes notes of.

``fill`` runs these over a broker without sockets: offsets are committed, delayed and timer messages
delivered and pending, messages popped and acknowledged, batches of a sink published and staged.
``facts`` returns what the next start must know, whatever happened in between: see ``FACTS``.

This code, before the first release, wrote ``tests/golden/rockhopper-before-0.2.0``.
"""

import asyncio
from pathlib import Path

from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.server.loop.cooperative_work import run_at_once
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkPart, encode_sink_body
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.features import NAMES, pop_of, sinks_of
from tests.support.killed_store import copy_killed
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker
from tests.support.stepped_loop import SteppedLoop

START_MS = 1_700_000_000_000
SINK = "orders-by-day"
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": str(20 * 50),
}

FACTS: dict[str, object] = {
    "offsets": {"newcomers": {0: 2}, "others": {}, "readers": {0: 11}},
    "delivered by level 1": 3,
    "timers pending": 3,
    "later": [b"soon 0", b"soon 1", b"soon 2"],
    "wheel": [b"timer 0", b"timer 1", b"timer 2"],
}
if "pop" in NAMES:
    FACTS |= {"popped up to": 10, "in flight": [2, 4, 5, 7, 9]}
if "sinks" in NAMES:
    FACTS |= {"batch": 41, "staged": 79, "rows": [b"row 0", b"row 1", b"row 2"]}


class NotedStore:
    """The broker, its clock and its loop."""

    def __init__(
        self, root: Path, settings: dict[str, str] | None = None, *, passed_ms: int = 0
    ) -> None:
        self.root = root
        self.clock = Clock(START_MS + passed_ms)
        self.loop = SteppedLoop()
        self.settings = {**SETTINGS, **(settings or {})}
        self.broker = ServedBroker(root, self.clock, self.settings)

    def start(self) -> None:
        """Open the store from its files, and start to deliver."""

        async def start() -> None:
            await self.broker.store.start()
            await self.broker.parts.open()
            self.broker.parts.start()

        self.loop.run(start())

    def fill(self) -> None:
        """Start every interaction and leave it unfinished."""
        self.loop.run(self._talk())
        self.pass_s(2)
        self.loop.run(self.broker.tables.saved())
        self.loop.run(self._talk_on())
        self.pass_s(0.5)

    async def _talk(self) -> None:
        broker = self.broker
        broker.tables.groups.put(SubscriptionGroup("pickers"))
        for topic in ("orders", "parcels", "later", "wheel", "rows"):
            broker.create_topic(topic, 1)
        for number in range(20):
            broker.put("orders", b"order %d" % number)
            broker.put("parcels", b"parcel %d" % number)
        broker.tables.offsets.commit("orders", "readers", 0, 5)
        broker.tables.offsets.commit("orders", "others", 0, 3)
        for number in range(3):
            self._delay(b"soon %d" % number, 1)
            self._delay(b"late %d" % number, 5)
            self._time(b"timer %d" % number, 1500)
            self._time(b"far %d" % number, 7_200_000)
        if "sinks" in NAMES:
            self._publish_parts(41, 3)
            await sinks_of(broker).publish(SINK, 41, [SinkPart("0", 3)])
        # Under SYNC_FLUSH nothing can be popped before.
        await broker.store.safe_point.wait(broker.store.log.written_offset)
        if "pop" in NAMES:
            self._pop(6, ack=(0, 1, 3))

    async def _talk_on(self) -> None:
        """Make changes that RocketMQ's files do not contain yet."""
        broker = self.broker
        broker.tables.offsets.commit("orders", "readers", 0, 11)
        broker.tables.offsets.commit("orders", "newcomers", 0, 2)
        broker.tables.offsets.delete_group("others")
        if "pop" in NAMES:
            self._pop(4, ack=(6, 8))
        if "sinks" in NAMES:
            self._publish_parts(42, 2)

    def _delay(self, body: bytes, level: int) -> None:
        properties = {"UNIQ_KEY": body.decode()}
        place = self.broker.kernel.scheduled.delayed.levels.redirect("later", 0, properties, level)
        self.broker.put(place[0], body, queue_id=place[1], properties=encode_properties(properties))

    def _time(self, body: bytes, delay_ms: int) -> None:
        properties = {"UNIQ_KEY": body.decode()}
        place = self.broker.kernel.scheduled.timers.redirect(
            "wheel", 0, properties, self.clock() + delay_ms
        )
        self.broker.put(place[0], body, queue_id=place[1], properties=encode_properties(properties))

    def _publish_parts(self, batch_id: int, count: int) -> None:
        rows = [
            SinkMessage("rows", 0, 0, 1, f"UNIQ_KEY\x01{batch_id}-{n}\x02", b"row %d" % n)
            for n in range(count)
        ]
        sinks_of(self.broker).stage(SINK, batch_id, "0", 0, encode_sink_body(rows), count, {"rows"})

    def _pop(self, count: int, ack: tuple[int, ...]) -> None:
        from rockhopper.broker.features.pop.extra_info import ExtraInfo
        from rockhopper.broker.features.pop.reading import PopRequest

        pop = pop_of(self.broker)
        wanted = PopRequest("pickers", "parcels", -1, count, 60_000, False, None, False)
        answer = run_at_once(pop.pop_steps(wanted))
        for message in decode_messages(answer.body()):
            if message.queue_offset in ack:
                info = ExtraInfo(0, answer.pop_ms, 60_000, answer.revive_queue_id, "0")
                pop.ack("pickers", "parcels", 0, [message.queue_offset], info)

    def pass_s(self, seconds: float) -> None:
        """Advance both clocks."""
        for _ in range(max(1, round(seconds / 0.25))):
            self.clock.advance(250)
            self.loop.advance(0.25)

    def bodies(self, topic: str) -> list[bytes]:
        """Return all bodies in queue 0 of a topic."""
        result = self.broker.store.reading.get_message(topic, 0, 0, 100)
        return [message.body for message in decode_messages(result.body)]

    def facts(self) -> dict[str, object]:
        """Return the facts that this broker knows."""
        broker = self.broker
        groups = ("newcomers", "others", "readers")
        return {
            "offsets": {group: broker.tables.offsets.queues("orders", group) for group in groups},
            "delivered by level 1": broker.kernel.scheduled.delayed.offset(1),
            "timers pending": broker.kernel.scheduled.timers.pending_count,
            **{topic: self.bodies(topic) for topic in ("later", "wheel")},
            **(self._facts_of_pop() if "pop" in NAMES else {}),
            **(self._facts_of_sinks() if "sinks" in NAMES else {}),
        }

    def _facts_of_pop(self) -> dict[str, object]:
        lane = pop_of(self.broker).lanes.get("pickers", "parcels", 0)
        return {
            "popped up to": lane.cursor if lane is not None else 0,
            "in flight": sorted(lane.entries) if lane is not None else [],
        }

    def _facts_of_sinks(self) -> dict[str, object]:
        sinks = sinks_of(self.broker)
        return {
            "batch": sinks.last_batch_id(SINK),
            "staged": sinks.staged_bytes,
            "rows": self.bodies("rows"),
        }

    def kill(self, to: Path) -> Path:
        """Copy the files that a kill now would leave, while no thread is saving a table."""
        tables = self.broker.tables

        async def quiet() -> None:
            for table in tables.all:
                while table.saving is not None:
                    await asyncio.gather(table.saving, return_exceptions=True)

        self.loop.run(quiet())
        return copy_killed(self.root, to)

    def stop(self) -> None:
        """Shut down cleanly."""

        async def stop() -> None:
            self.broker.parts.stop()
            await self.broker.parts.close()
            await self.broker.store.close()

        self.loop.run(stop())
        self.loop.close()
