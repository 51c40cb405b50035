"""CheckBack: asks producers for the outcome of transactions that they have not ended.

The first check of a half message is due transactionTimeOut after its arrival, or after the time in
its property CHECK_IMMUNITY_TIME_IN_SECONDS; the next ones follow every transactionCheckInterval. A
check sends CHECK_TRANSACTION_STATE (39) to one live connection of the producer group, round robin.
After transactionCheckMax checks, or when the log is about to delete it (fileReservedTime), the half
message is held for an operator. Its age is that of its log file, so a clock that is wrong for a
while does not end a transaction.

With authentication, only producers that may publish to the topic are asked, because any client can
claim to be a producer of a group.

While no producer of the group is online, checks are not counted; RocketMQ counts them, and discards
a transaction 8 minutes after its producers disconnected. The check is made as soon as a producer
reconnects.
"""

from collections.abc import Iterable

import structlog

from rockhopper.broker.features.transactions.check_counts import CheckCounts
from rockhopper.broker.features.transactions.ends import TransactionEnds
from rockhopper.broker.features.transactions.half_messages import message_to_check
from rockhopper.broker.features.transactions.ledger import Ledger
from rockhopper.broker.features.transactions.open_halves import OpenHalf, OpenHalves
from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.broker.kernel.members.guarding import may_publish
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.server.loop.wall_waits import WallTimer
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.put import Copy
from rockhopper.broker.users.peer import Peer, TransactionCheck
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TRANSACTION_CHECK_MAX_TIME_TOPIC
from rockhopper.protocol.properties import PROPERTY_REAL_TOPIC, PROPERTY_TRANSACTION_CHECK_TIMES

log = structlog.get_logger("broker.transactions")

RETRY_MS = 1000
LOOKS_PER_TURN = 200
BYTES_PER_TURN = 1 << 20
HOUR_MS = 3_600_000


class CheckBack(KernelListener):
    """The checks of open half messages. Belongs to the event loop."""

    def __init__(
        self,
        kernel: Kernel,
        halves: OpenHalves,
        ledger: Ledger,
        counts: CheckCounts,
        ends: TransactionEnds,
    ) -> None:
        self._halves = halves
        self._ledger = ledger
        self._counts = counts
        self._ends = ends
        self._topics = kernel.tables.topics
        self._config = kernel.config
        self._settings = kernel.config.transactions
        self._producers = kernel.producers
        self._access = kernel.access
        now_ms = self._now_ms = kernel.clock.steady_ms
        self.counted_ms = kernel.store.retention.counted_ms
        """The time that the age of log files is counted by."""
        self._timer = WallTimer(now_ms)
        self._is_running = False
        self._turns: dict[str, int] = {}
        self.check_count = 0
        self.held_count = 0

    def has_looked_since(self, time_ms: int) -> bool:
        """Whether every open half message was checked after *time_ms*."""
        interval_ms = self._settings.check_interval_ms
        return self._halves.next_due_ms() is None or self._now_ms() - time_ms > interval_ms

    def start(self) -> None:
        """Start the checks; needs a running loop."""
        self._is_running = True
        self.arm()

    def stop(self) -> None:
        """Stop the checks."""
        self._is_running = False
        self._timer.cancel()

    def arm(self) -> None:
        """Arm the timer for the next check."""
        due_ms = self._halves.next_due_ms()
        if self._is_running and due_ms is not None:
            self._timer.arm(due_ms, self._run)

    def arm_for(self, due_ms: int) -> None:
        """Make the timer fire at *due_ms* at the latest, or earlier if ``arm`` set it so."""
        if self._is_running:
            self._timer.arm(due_ms, self._run)

    def look_soon(self, half: OpenHalf) -> None:
        """Check *half* again in a second, whenever it was due."""
        self._halves.schedule(half, self._now_ms() + RETRY_MS)
        self.arm()

    def producer_joined(self, group: str) -> None:
        """Check the half messages that wait for a producer of *group*."""
        if self._halves.producer_came(group):
            self.arm()

    def _run(self) -> None:
        halves = self._halves
        now_ms = self._now_ms()
        size_bytes = 0
        for _ in range(LOOKS_PER_TURN):
            half = halves.take_due(now_ms) if size_bytes < BYTES_PER_TURN else None
            if half is None:
                break
            try:
                size_bytes += self._look(half, now_ms)
            except Exception:
                # The others must be checked all the same.
                halves.schedule(half, now_ms + self._settings.check_interval_ms)
                log.exception(
                    "a half message could not be checked", offset=half.offset, group=half.group
                )
        self.arm()

    def _look(self, half: OpenHalf, now_ms: int) -> int:
        """Check one half message; return the number of bytes sent."""
        halves = self._halves
        halves.stop_waiting(half)
        halves.schedule(half, now_ms + RETRY_MS)
        if half.is_committed:
            self._ends.finish_committed(half)
            return 0
        is_expired = self._is_expired(half, now_ms)
        producers = [] if is_expired else self._producers.clients(half.group)
        if not is_expired and not any(not each.connection.closed for each in producers):
            halves.await_producer(half)
            self._schedule(half, now_ms)
            return 0
        message = self._ledger.half_at(half.log_offset)
        if message is None:
            self._ends.give_up(half)
            return 0
        if self._ends.find_final(half, message):
            self._ends.finish_committed(half)
            return 0
        if is_expired:
            self.hold(half, message)
            return 0
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        connection = self._connection(
            half.group, [each for each in producers if may_publish(self._access, each, topic)]
        )
        if connection is None:
            halves.await_producer(half)
            self._schedule(half, now_ms)
            return 0
        if connection.writing_paused:
            return 0
        half.check_times += 1
        self._counts.record_count(half.offset, half.check_times)
        asked = message_to_check(message, half.check_times)
        size_bytes = connection.notify(TransactionCheck(message, asked, self._config.broker_name))
        self.check_count += 1
        self._schedule(half, now_ms)
        return size_bytes

    def hold(self, half: OpenHalf, message: StoredMessage) -> StoreError | None:
        """Move a half message to the topic for operators; return the error if that fails."""
        self._ensure_hold_topic()
        written = self._ledger.finish(
            half,
            Copy(
                TRANSACTION_CHECK_MAX_TIME_TOPIC,
                0,
                message,
                message.properties | {PROPERTY_TRANSACTION_CHECK_TIMES: str(half.check_times)},
            ),
        )
        if written.failure is not None:
            return written.failure
        log.warning(
            "a transaction is held for an operator: its producer never reported the outcome",
            group=half.group,
            id=message.message_id,
            offset_id=message.offset_message_id,
            checks=half.check_times,
            resume_with="request code 323",
        )
        self._halves.remove(half)
        self._counts.forget(half.offset)
        self.held_count += 1
        return None

    def _ensure_hold_topic(self) -> None:
        if TRANSACTION_CHECK_MAX_TIME_TOPIC not in self._topics:
            self._topics.put(
                TopicConfig(TRANSACTION_CHECK_MAX_TIME_TOPIC, read_queue_nums=1, write_queue_nums=1)
            )

    def _schedule(self, half: OpenHalf, now_ms: int) -> None:
        """Check again after the interval, but before the half message expires."""
        left_ms = self._reserved_ms + 1 - self._age_ms(half, now_ms)
        wait_ms = min(self._settings.check_interval_ms, left_ms)
        self._halves.schedule(half, now_ms + max(wait_ms, 1))

    def _is_expired(self, half: OpenHalf, now_ms: int) -> bool:
        return (
            half.check_times >= self._settings.check_count_max
            or self._age_ms(half, now_ms) > self._reserved_ms
        )

    def _age_ms(self, half: OpenHalf, now_ms: int) -> int:
        # By both: either may have been set forward since the half message came.
        age_ms = now_ms - half.stored_ms
        return min(age_ms, self.counted_ms() - half.stored_ms + half.ahead_ms)

    @property
    def _reserved_ms(self) -> int:
        return max(self._config.store.live.file_reserved_hours, 1) * HOUR_MS

    def _connection(self, group: str, producers: Iterable[Client]) -> Peer | None:
        """Return the next connection; prefer connections that read their responses."""
        live = [client.connection for client in producers if not client.connection.closed]
        reading = [connection for connection in live if not connection.writing_paused] or live
        if not reading:
            self._turns.pop(group, None)
            return None
        turn = self._turns.get(group, -1) + 1
        self._turns[group] = turn
        return reading[turn % len(reading)]
