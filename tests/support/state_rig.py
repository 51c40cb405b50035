"""A master and a follower in one process: two stores, with the log copied by hand."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from rockhopper.broker.app import FEATURES
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.kernel.scheduled.timers.times import compute_out_ms
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.replication.state.state_applier import StateApplier
from rockhopper.broker.replication.state.state_writer import StateWriter
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.put import MessageToStore
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
    encode_properties,
)
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.peers import Clock
from tests.support.served_broker import SETTINGS, STORE_HOST
from tests.support.stepped_loop import SteppedLoop

LEVEL, LEVEL_MS = 1, 1000
GROUP = "billing"
Result = TypeVar("Result")


class Member(BrokerCore):
    """One replica: a store that follows or leads."""

    feature_list = FEATURES

    def __init__(self, root: Path, clock: Clock, loop: SteppedLoop, **settings: str) -> None:
        self.loop = loop
        self.config = build_config(SETTINGS | settings | {"storePathRootDir": str(root)})
        self.clock = BrokerClock(clock, clock.monotonic_ns)
        self.access = AccessRules(remote_admin=False)
        self.stats = BrokerStats(now_ms=clock)
        self.values = KeyValueTable(root / "config" / "kvConfig.json")
        self.load_tables()
        self.values.load()
        self.tables.include_names(self.values)
        self.writer: StateWriter | None = None
        self.is_gone = False
        self.open_store(STORE_HOST)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop."""
        return self.loop.run(work)

    async def flushing(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine that waits for the disk."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.store.flush_now()
            await asyncio.sleep(0)
        return task.result()

    def lead(self) -> None:
        """Become a broker over the open store, and replicate all state."""

        async def lead() -> None:
            self.build(STORE_HOST)
            await self.flushing(self.parts.open())
            self.values.start_saving()
            self.writer = new_writer(self)
            self.writer.start()
            self.parts.start()

        self.run(lead())

    def follow(self) -> None:
        """Start to apply the state of a master."""

        async def follow() -> None:
            self.tables.start()
            self.values.start_saving()
            self.applier = StateApplier(self.store, self.tables)
            self.applier.open()

        self.run(follow())

    def take(
        self,
        master: "Member",
        end_offset: int | None = None,
        *,
        dispatched_offset: int | None = None,
        replicated_offset: int | None = None,
    ) -> None:
        """Copy the master's log up to *end_offset*, and apply the replicated state if allowed."""
        ours, theirs = self.store, master.store
        end = theirs.log.written_offset if end_offset is None else end_offset
        file_size = self.config.store.commit_log_file_size_bytes

        async def take() -> None:
            while (start := ours.log.received_offset) < end:
                file_end = start - start % file_size + file_size
                data = theirs.opened.commit_log.read(start, min(end, file_end))
                ours.append_raw(start, data)
            ours.follow_to(end if dispatched_offset is None else dispatched_offset)
            while ours.catch_up():
                pass
            self.applier.apply_to(end if replicated_offset is None else replicated_offset)

        self.run(take())

    def promote(self) -> None:
        """Apply the rest, and lead."""
        self.run(self.applier.finish())
        for tail in self.store.staging.tails.values():
            tail.next_offset = self.store.reading.queue_range(tail.topic, tail.queue_id)[1]
        self.lead()

    def kill(self) -> None:
        """Close everything without a shutdown, unless that was done."""
        if self.is_gone:
            return
        self.is_gone = True

        async def kill() -> None:
            if self.writer is not None:
                self.writer.drop()
                self.parts.stop()
            for table in self.tables.every:
                table.stop_saving()

        self.run(kill())
        self.store.abandon()

    def put(self, topic: str, body: bytes = b"hello", **properties: str) -> None:
        """Store one message."""

        async def put() -> None:
            self.store.put(MessageToStore(topic, 0, body, encode_properties(properties)))

        self.run(put())

    def put_delayed(self, topic: str, body: bytes) -> None:
        """Store a message with a delay of one second."""
        waiting = {
            PROPERTY_DELAY_LEVEL: str(LEVEL),
            PROPERTY_REAL_TOPIC: topic,
            PROPERTY_REAL_QUEUE_ID: "0",
        }
        self.put(SCHEDULE_TOPIC, body, **waiting)

    def put_timer(self, topic: str, body: bytes, due_ms: int) -> None:
        """Store a message with a delivery time."""
        waiting = {
            PROPERTY_TIMER_OUT_MS: str(compute_out_ms(due_ms)),
            PROPERTY_REAL_TOPIC: topic,
            PROPERTY_REAL_QUEUE_ID: "0",
            PROPERTY_UNIQUE_KEY: body.hex(),
        }
        self.put(TIMER_TOPIC, body, **waiting)

    def bodies(self, topic: str) -> list[bytes]:
        """Return the bodies in the queue of a topic."""
        return [
            m.body for m in decode_messages(self.store.reading.get_message(topic, 0, 0, 1000).body)
        ]

    def create_topic(self, name: str) -> None:
        """Create a topic with one queue."""

        async def create() -> None:
            self.tables.topics.put(TopicConfig(name, read_queue_nums=1, write_queue_nums=1))

        self.run(create())


class Alone:
    """A replica that leads, with no other that could."""

    leads_alone = True


def new_writer(member: Member) -> StateWriter:
    """Return a writer of this member's state."""
    return StateWriter(member.store, member.tables, Alone(), now_ms=member.clock.passed_ms)


class Pair:
    """A master that leads and a follower with all its data."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.root = root
        self.settings = settings
        self._members: list[Member] = []
        self.loop = SteppedLoop()
        self.clock = Clock()
        self.master = self.member("a")
        self.master.lead()
        self.follower = self.member("b")
        self.follower.follow()
        self.take()

    def member(self, name: str) -> Member:
        """Return a replica over the store of that name, new or as it was left."""
        member = Member(self.root / name, self.clock, self.loop, **self.settings)
        self._members.append(member)
        return member

    def close(self) -> None:
        """Close everything."""
        for member in self._members:
            member.kill()
        self.loop.run_until_complete(self._end_tasks())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def take(self) -> None:
        """Copy everything from the master to the follower."""
        self.follower.take(self.master)

    def pass_time(self, seconds: float) -> None:
        """Advance the time for both."""
        self.clock.advance(int(seconds * 1000))
        self.loop.advance(seconds)

    def gather(self) -> None:
        """Advance the time until gathered changes are sent, and copy them to the follower."""
        self.pass_time(0.2)
        self.take()

    def fail_over(self) -> Member:
        """Kill the master, and make the follower lead."""
        self.master.kill()
        self.follower.promote()
        return self.follower
