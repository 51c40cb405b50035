"""Sinks over a separate store, without a broker, and one batch to publish."""

from pathlib import Path
from typing import Any

from rockhopper.broker.features.sinks.appender import BatchAppender
from rockhopper.broker.features.sinks.publisher import SinkError, SinkPublisher
from rockhopper.broker.features.sinks.state import SinksState
from rockhopper.broker.kernel.state_channels import StateChannels
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkPart, encode_sink_body
from rockhopper.protocol.message_ids import UniqueIds
from tests.support.open_stores import STORE_HOST, open_store
from tests.support.peers import Clock

SINK = "query-1"
PARTS = {"0.0": [b"a%d" % n for n in range(700)], "1.0": [b"b%d" % n for n in range(400)]}
WHOLE = [*PARTS["0.0"], *PARTS["1.0"]]
STORE_FILES: dict[str, Any] = {
    "commit_log_file_size_bytes": 1 << 16,
    "consume_queue_file_size_bytes": 20 * 500,
    "flush_interval_ms": 10,
}


class Sinks:
    """A publisher over a separate store, and its dependencies."""

    def __init__(self, root: Path, **store: Any) -> None:
        clock = self.clock = Clock()
        self.passed = Clock()
        config = BrokerConfig()
        self.root = root
        self.store: MessageStore = open_store(root, clock, **(STORE_FILES | store))
        topics = self.topics = TopicTable(root / "config" / "topics.json", config, now_ms=clock)
        topics.put(TopicConfig("TopicA", read_queue_nums=1, write_queue_nums=1, perm=6))
        appender = BatchAppender(
            self.store,
            topics,
            BrokerStats(now_ms=clock),
            lambda topic, queue_id, _properties: (topic, queue_id),
            UniqueIds(b"\x7f\0\0\1", clock),
            store_host=STORE_HOST,
            suffix=b"CLUSTER\x01c\x02",
        )
        self.state = SinksState(self.store.opened.layout, BrokerClock(clock, clock.monotonic_ns))
        self.prepared, self.decisions = self.state.prepared, self.state.decisions
        self.contents = self.state.contents
        self.tables = tuple(self.state.tables)
        for table in self.tables:
            table.load()
        self.publisher = SinkPublisher(
            self.state,
            self.store,
            appender,
            StateChannels(),
            staged_bytes_max=1 << 30,
            expire_ms=3_600_000,
            now_ms=clock,
            passed_ms=self.passed,
        )
        topics.listeners.append(self.publisher)

    async def __aenter__(self) -> "Sinks":
        await self.store.start()
        for table in self.tables:
            table.start_saving()
        await self.publisher.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.publisher.close()
        for table in self.tables:
            await table.saved()
            table.stop_saving()
        await self.store.close()

    def stage(self, batch_id: int) -> None:
        for name, texts in PARTS.items():
            for sequence, start in enumerate(range(0, len(texts), 300)):
                chunk = texts[start : start + 300]
                body = encode_sink_body(
                    [
                        SinkMessage("TopicA", 0, 0, 1, f"UNIQ_KEY\x01{t.decode()}\x02", t)
                        for t in chunk
                    ]
                )
                self.publisher.stage(SINK, batch_id, name, sequence, body, len(chunk), {"TopicA"})

    async def publish(self, batch_id: int) -> tuple[int, bool]:
        parts = [SinkPart(name, len(texts)) for name, texts in PARTS.items()]
        return await self.publisher.publish(SINK, batch_id, parts)

    async def run_batch(self, batch_id: int) -> None:
        """Run a batch as a job that does not know its progress."""
        if self.publisher.last_batch_id(SINK) >= batch_id:
            return
        try:
            self.stage(batch_id)
            await self.publish(batch_id)
        except SinkError:
            self.publisher.abort(SINK, batch_id, [])
            self.stage(batch_id)
            await self.publish(batch_id)
