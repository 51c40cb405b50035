"""Pop consumption over a real store, without sockets and without a loop; tests advance time."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from rockhopper.broker.features.pop.extra_info import ExtraInfo, parse_extra_info
from rockhopper.broker.features.pop.reading import PopRequest
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.features.pop.state import PopState
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.cooperative_work import run_at_once
from rockhopper.broker.server.loop.filter_turns import FilterTurns
from rockhopper.broker.settings.broker_config import StoreConfig
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.broker.store.put import MessageToStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import pop_retry_topic
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.killed_store import copy_killed
from tests.support.open_stores import flush, open_store
from tests.support.peers import Clock

GROUP, TOPIC = "pickers", "parcels"
RETRY = pop_retry_topic(GROUP, TOPIC)
DEAD = f"%DLQ%{GROUP}"


def journal_in(root: Path) -> RecordJournal:
    """Return the pop journal of the store in *root*, for lanes without a service."""
    return RecordJournal(root / "pop", root / "quarantine", what="popped messages", strict=True)


class Popped:
    """A popped message, and the information that its consumer must send back."""

    def __init__(self, message: StoredMessage, info: ExtraInfo, topic: str, offset: int) -> None:
        self.message = message
        self.body = message.body
        self.info = info
        self.topic = topic
        self.offset = offset


class PopWorld:
    """One store directory and one PopService over it; a test can kill and reopen it."""

    def __init__(
        self,
        root: Path,
        clock: Clock | None = None,
        *,
        retry_max_times: int = 16,
        steady: bool = False,
        **settings: str,
    ) -> None:
        """With *steady*, a BrokerClock counts the time, so that a test may set the clock."""
        self.root = root
        self.clock = clock or Clock()
        self.now_ms: Callable[[], int] = self.clock
        if steady:
            self.now_ms = BrokerClock(self.clock, self.clock.monotonic_ns).steady_ms
        self._retry_max_times = retry_max_times
        self._settings = settings
        self._generation = 0
        self.knows_group = True
        """Whether the group table reached the disk before the next opening."""
        self._open(committed={})

    def _open(self, committed: dict[str, dict[int, int]]) -> None:
        clock = self.now_ms
        tables = self.root / "config"
        config = build_config(self._settings | {"storePathRootDir": str(self.root)})
        config = dataclasses.replace(config, store=StoreConfig(root=self.root))
        self.store = open_store(self.root, clock, commit_log_file_size_bytes=1 << 18)
        self.topics = TopicTable(tables / "topics.json", config, now_ms=clock)
        self.groups = SubscriptionGroupTable(tables / "g.json", config, now_ms=clock)
        self.offsets = ConsumerOffsetTable(tables / "consumerOffset.json", now_ms=clock)
        if self.knows_group:
            self.groups.groups[GROUP] = SubscriptionGroup(
                GROUP, retry_max_times=self._retry_max_times
            )
        for name in (TOPIC, RETRY, DEAD):
            if name == TOPIC or self.store.reading.queue_range(name, 0)[1]:
                self.topics.configs[name] = TopicConfig(name, read_queue_nums=1, write_queue_nums=1)
        self.offsets.from_json({"offsetTable": committed})
        # The parts of a kernel that pop uses.
        kernel = SimpleNamespace(
            config=config,
            store=self.store,
            tables=SimpleNamespace(topics=self.topics, groups=self.groups, offsets=self.offsets),
            consumers=ConsumerGroups(now_ms=clock),
            puller=SimpleNamespace(turns=FilterTurns(self.store.reading.reader.budget)),
            stats=BrokerStats(now_ms=clock),
        )
        state = PopState(self.store.opened.layout, clock)
        self.pop_service = PopService(state, cast(Kernel, kernel), chance=lambda: 0.1)
        self.pop_service.open()

    @property
    def lanes_in_flight(self) -> int:
        """The number of messages in flight."""
        return self.pop_service.lanes.in_flight

    def send(self, body: bytes, properties: str = "") -> None:
        """Store one message."""
        self.store.put(MessageToStore(TOPIC, 0, body, properties))

    def pop(
        self, count: int = 32, invisible_ms: int = 1000, *, order: bool = False, **changes: object
    ) -> list[Popped]:
        """Pop and read the answer like a client."""
        wanted = PopRequest(GROUP, TOPIC, -1, count, invisible_ms, False, None, order)
        answer = run_at_once(
            self.pop_service.pop_steps(wanted._replace(**changes))  # type: ignore[arg-type]
        )
        found = []
        starts = answer.ext().get("startOffsetInfo", "")
        start_of = {
            part.split(" ")[0]: int(part.split(" ")[2]) for part in starts.split(";") if part
        }
        for message in decode_messages(answer.body()):
            point = message.properties.get("POP_CK")
            if point is None:
                info = ExtraInfo(
                    start_of["0"], answer.pop_ms, invisible_ms, answer.revive_queue_id, "0"
                )
                found.append(Popped(message, info, TOPIC, message.queue_offset))
            else:
                offset = int(point.split(" ")[7])
                found.append(Popped(message, parse_extra_info(point), RETRY, offset))
        return found

    def ack(self, popped: Popped) -> None:
        """Acknowledge a message."""
        self.pop_service.ack(GROUP, popped.topic, 0, [popped.offset], popped.info)

    def change(self, popped: Popped, invisible_ms: int, *, suspend: bool = False) -> bool:
        """Change when it comes back; return whether the broker agreed."""
        changed = self.pop_service.change_invisible(
            GROUP, popped.topic, 0, popped.offset, popped.info, invisible_ms, suspend=suspend
        )
        if changed is None:
            return False
        popped.info = popped.info._replace(pop_ms=changed[0], invisible_ms=changed[1])
        return True

    def pass_time(self, ms: int) -> None:
        """Advance the time, and revive messages that are due."""
        self.clock.advance(ms)
        while (due := self.pop_service.lanes.next_due_ms) is not None and due <= self.now_ms():
            assert self.pop_service.reviving.turn()

    def flush(self) -> None:
        """Make the log durable."""
        flush(self.store)
        self.pop_service.reviving.settle()

    def kill(self, *, lose_journal: bool = False) -> None:
        """Kill the process and start it again, with the committed offsets."""
        committed = {
            f"{topic}@{group}": dict(queues) for topic, group, queues in self.offsets.entries()
        }
        self._generation += 1
        root = copy_killed(self.root, self.root.with_name(f"{self.root.name}-{self._generation}"))
        self.abandon()
        self.root = root
        if lose_journal:
            for path in self.journal_files():
                path.unlink()
        self._open(committed)

    def journal_files(self) -> list[Path]:
        """Return the files of the journal."""
        return sorted((self.root / "rockhopper" / "pop").glob("*"))

    def abandon(self) -> None:
        """Close everything without saving."""
        self.pop_service.journal.close()
        self.store.abandon()

    def dead(self) -> list[StoredMessage]:
        """Return the dead letters."""
        return decode_messages(self.store.reading.get_message(DEAD, 0, 0, 1000).body)
