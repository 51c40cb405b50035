"""PopService: pop consumption of one broker, without the requests around it.

A group's progress is stored in two places. The cursor and the messages in flight are in the lanes,
which have a journal. The offset that the group commits (in consumerOffset.json, shown as lag by the
tools) is the low-water mark: the oldest unsettled message. A pull consumer, RocketMQ itself, or
this broker without its journal continues from the committed offset, and so gets some messages twice
and misses none.

A commit by another client of the group moves the cursor forward, never back, and does not change
the messages in flight. An operator's reset moves the cursor anywhere and forgets the messages in
flight.

A late acknowledgement, after the message was copied to the retry topic or popped again, succeeds
and changes nothing: the copy is delivered.
"""

import random
from collections.abc import Callable, Generator, Iterable

import structlog

from rockhopper.broker.features.pop.adopting import adopt
from rockhopper.broker.features.pop.extra_info import (
    ORDERLY_REVIVE_QUEUE,
    ExtraInfo,
    retry_flag,
)
from rockhopper.broker.features.pop.in_order import InOrder, read
from rockhopper.broker.features.pop.lanes import InFlight, Lane
from rockhopper.broker.features.pop.polling import PopPolling, Waiter
from rockhopper.broker.features.pop.reading import PopAnswer, PopRequest, split_records
from rockhopper.broker.features.pop.reviving import Reviving
from rockhopper.broker.features.pop.sources import ANY_QUEUE, QUEUES_PER_SLICE, PopSources, Queue
from rockhopper.broker.features.pop.state import PopState
from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.settings.live_settings import InitialOffset
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.names import RETRY_PREFIX, older_pop_retry_topic, pop_owners, retry_topic
from rockhopper.protocol.properties import PROPERTY_RETRY_TOPIC, is_popped_copy
from rockhopper.protocol.store.message_codec import decode_message

log = structlog.get_logger("broker.pop")

REVIVE_QUEUES = 8
FETCHED_MAX = 32


class PopService(Part, KernelListener, CatalogListener):
    """Belongs to the event loop."""

    def __init__(
        self,
        state: PopState,
        kernel: Kernel,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """*chance* is uniform in [0, 1): it spreads pops over queues and retry topics."""
        config, store, groups = kernel.config, kernel.store, kernel.tables.groups
        self._config = config
        self._settings = config.pop
        self._store = store
        self._topics = kernel.tables.topics
        self._groups = groups
        self._offsets = kernel.tables.offsets
        self._consumers = kernel.consumers
        self.turns = kernel.puller.turns
        """Shared with filtered pulls, because they use the same budget."""
        self._stats = kernel.stats
        self._now_ms = state.now_ms
        self.sources = PopSources(config, kernel.tables.topics, groups, chance)
        self.request_modes = state.request_modes
        self.journal = state.journal
        self.lanes = state.lanes
        self.compaction = state.compaction
        self._revive_queue = -1
        # By group, its retry topics and their original topics; None after a change of topics.
        self._retry_topics: dict[str, list[tuple[TopicConfig, str]]] | None = None
        self.polling = PopPolling(store, self.lanes)
        self.reviving = Reviving(state, kernel, self.polling)
        self._in_order = InOrder(config, self.lanes, store, groups, self.reviving)

    def open(self) -> None:
        """Load the journal, without records that contradict the store. Blocks.

        Raises OSError: a file cannot be read or written.
        """
        self.lanes.load(self._store.log.written_offset)
        for lane in self.lanes:
            # After a kill the journal may have a group that is not yet in the saved table.
            self._groups.find_or_create(lane.group)
        self._topics.listeners.append(self)

    def rocketmq_wrote(self) -> None:
        """Take over messages that RocketMQ's broker handed out by pop from this store. Blocks.

        Raises:
            OSError: the journal cannot be written.
        """
        for group, _, _ in adopt(self._store, self._topics, self._offsets, self.lanes):
            self._groups.find_or_create(group)

    def start(self) -> None:
        """Forget deleted topics and groups, and start to revive; needs a running event loop."""
        clamped = self.lanes.clamp(self._store.reading.queue_range)
        if clamped:
            log.warning("popped messages are no longer in the log", lanes=clamped)
        self.expire()
        self.reviving.start()

    def stop(self) -> None:
        """Stop reviving, and answer all waiting requests."""
        self.reviving.stop()
        self.polling.close()

    async def abandon(self) -> None:
        """Stop, and close the journal."""
        self.stop()
        await self.compaction.close()
        self.journal.close()

    async def close(self) -> None:
        """Settle copies that are on disk: a clean stop redelivers nothing. Needs the store."""
        end = self.lanes.unsettled_end
        if end and self._store.failure is None:
            try:
                await self._store.safe_point.wait_for_disk(end)
            except StoreError as error:
                log.warning("redelivered messages may be delivered twice", reason=str(error))
        self.reviving.settle()
        await self.compaction.close()
        self.journal.close()

    def expire(self) -> None:
        """Forget lanes whose group or topic was deleted."""
        for lane in self.lanes:
            if lane.group not in self._groups or lane.topic not in self._topics:
                self._drop(lane)
        self.reviving.settle()

    def group_deleted(self, group: str) -> None:
        """Forget the group's lanes."""
        for lane in self.lanes:
            if lane.group == group:
                self._drop(lane)

    def purge(self) -> None:
        """Forget the lanes and request modes of all groups."""
        for lane in self.lanes:
            self._drop(lane)
        self.request_modes.from_json({"messageRequestModeMap": {}})
        self.request_modes.mark_changed()

    def topic_purged(self, topic: str) -> None:
        """Forget the lanes of a topic whose messages were deleted."""
        for lane in self.lanes:
            if lane.topic == topic:
                self._drop(lane)

    def group_reset(self, group: str, topic: str) -> None:
        """Try the group's waiting pops after an operator set its offsets."""
        self.polling.ring((group, topic))

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Forget the lanes of a deleted topic, and answer its waiting pops."""
        self._retry_topics = None
        if topic is None and name:
            for lane in self.lanes:
                if lane.topic == name:
                    self._drop(lane)
            self.polling.ring_topic(name)

    def _drop(self, lane: Lane) -> None:
        try:
            self.lanes.drop(lane)
        except OSError as error:
            log.error("pop journal not written", reason=str(error))

    def _handle_change(self, lane: Lane) -> None:
        self.reviving.commit(lane)
        self.reviving.reschedule()
        self.compaction.consider()

    def pop_steps(
        self, wanted: PopRequest, near: Queue | None = None
    ) -> Generator[None, None, PopAnswer]:
        """Hand out messages, if there are any; each step reads QUEUES_PER_SLICE queues.

        A wide topic is read from the queue *near* on, until the end of the first step that finds
        messages. So messages are in the answer before anything else runs.

        Raises:
            Refusal: the topic is gone. OSError, StoreError: nothing was handed out; retry later.
        """
        self.reviving.pulling_groups.discard(wanted.group)
        self.reviving.popped_topics[wanted.group] = wanted.topic
        self._fetch_pulled(wanted)
        if wanted.order and self._has_retries(wanted):
            # Messages that failed before the group was orderly, or while it pulled, have no order.
            unordered = wanted._replace(order=False)
            answer = yield from self._pop(unordered, self.sources.retry_queues(wanted))
            if answer.count:
                return answer
        return (yield from self._pop(wanted, self.sources.list_sources(wanted, near)))

    def _has_retries(self, wanted: PopRequest) -> bool:
        for topic, queue_id, _ in self.sources.retry_queues(wanted):
            high = self._store.reading.queue_range(topic, queue_id)[1]
            lane = self.lanes.get(wanted.group, topic, queue_id)
            if high > (0 if lane is None else lane.cursor):
                return True
        return False

    def _fetch_pulled(self, wanted: PopRequest) -> None:
        """Move the messages in the retry topic of a group that pulled to the one that it pops.

        They count as popped with an invisible time of 0, by an attempt that does not count.
        """
        name = retry_topic(wanted.group)
        topic = self._topics.get(name)
        if topic is None or self.is_pulled(wanted.group):
            return
        self._move_all(wanted, topic)

    def is_pulled(self, group: str) -> bool:
        """Return whether the members of a group pull its retry topic themselves."""
        online = self._consumers.get(group)
        return online is not None and online.subscription(retry_topic(group)) is not None

    def retries_read(self, group: str) -> None:
        """Move the failed pops of a group that no longer pops to the topic that it pulls."""
        if not self.is_pulled(group) or self.polling.has_group(group):
            return
        self.reviving.pulling_groups.add(group)
        for topic, origin in self._retry_topics_of(group):
            self._move_all(PopRequest(group, origin, ANY_QUEUE, 1, 0, False), topic)

    def _retry_topics_of(self, group: str) -> list[tuple[TopicConfig, str]]:
        if self._retry_topics is None:
            self._retry_topics = {}
            for each in self._topics.configs.values():
                for owner, origin in pop_owners(each.name):
                    if "+" in each.name or origin in self._topics:
                        self._retry_topics.setdefault(owner, []).append((each, origin))
        return self._retry_topics.get(group, [])

    def _move_all(self, wanted: PopRequest, topic: TopicConfig) -> None:
        """Pop a retry topic with an invisible time of 0: copies go where the group reads."""
        name = topic.name
        for queue_id in range(topic.read_queue_nums):
            high = self._store.reading.queue_range(name, queue_id)[1]
            if high <= (self._offsets.get(name, wanted.group, queue_id) or 0):
                continue
            lane = self._lane(wanted, name, queue_id, retry=True)
            room = self._settings.in_flight_max - len(lane.entries)
            if lane.cursor == high or room <= 0:
                continue
            now_ms = self._now_ms()
            unseen = PopAnswer(name, now_ms, 0, 0)
            count = min(room, FETCHED_MAX)
            _, result = read(self._store, lane, lane.cursor, count, None, unseen)
            found = list(split_records(result.body)) if result.status is GetStatus.FOUND else []
            offsets = [offset for offset, record in found if self._is_for(wanted, name, record)]
            if offsets or result.next_offset != lane.cursor:
                self.lanes.popped(lane, result.next_offset, now_ms, 0, offsets)
                self._handle_change(lane)
                self.reviving.turn()

    def _pop(
        self, wanted: PopRequest, queues: Iterable[tuple[str, int, bool]]
    ) -> Generator[None, None, PopAnswer]:
        if wanted.order:
            revive_queue_id = ORDERLY_REVIVE_QUEUE
        else:
            revive_queue_id = self._revive_queue = (self._revive_queue + 1) % REVIVE_QUEUES
        answer = PopAnswer(wanted.topic, self._now_ms(), wanted.invisible_ms, revive_queue_id)
        is_filtered = _is_filtered(wanted)
        for looked, (topic, queue_id, retry) in enumerate(queues):
            if looked and is_filtered and not retry and not self.turns.budget.has_room():
                answer.is_unfinished = True
                break
            if looked and looked % QUEUES_PER_SLICE == 0:
                if answer.count or self.polling.is_closed:
                    answer.is_unfinished = True
                    break
                yield
                self.sources.topic(wanted)
            lane = self._lane(wanted, topic, queue_id, retry=retry)
            before = answer.count
            self._pop_lane(wanted, lane, answer, retry=retry)
            if answer.count > before and not wanted.order:
                self._stats.get_checkpoint_traffic(wanted.topic, wanted.group).count_request(1, 0)
                if not retry:
                    self._stats.get_pull_traffic(topic, wanted.group).record_delivery(
                        queue_id, lane.cursor
                    )
        if answer.count:
            self._stats.get_found += 1
            traffic = self._stats.get_pull_traffic(wanted.topic, wanted.group)
            traffic.count_request(answer.count, sum(map(len, answer.records)))
        else:
            self._stats.get_missed += 1
        if answer.count and (answer.rest or answer.is_unfinished):
            self.polling.ring((wanted.group, wanted.topic))
        return answer

    def wait(
        self,
        peer: Peer,
        wanted: PopRequest,
        wait_s: float,
        tell: Callable[[PopAnswer], None],
        fail: Callable[[Exception], None],
        check: Callable[[], None],
    ) -> bool:
        """Pop as soon as a message arrives; return False if too many requests wait already.

        *tell* receives the messages, or an empty answer after *wait_s*; *fail* receives the error.
        Neither is called after *peer* has disconnected. *check* raises if the pop is no longer
        allowed: permissions, group and topic may have changed while it waited.
        """
        key = wanted.group, wanted.topic

        def attempt(waiter: Waiter, near: Queue | None) -> Generator[None, None, bool]:
            try:
                if self._awaits_turn(waiter, wanted) and not waiter.is_last:
                    return False
                if self.polling.is_closed or waiter.has_turn is False:
                    answer = PopAnswer(wanted.topic, self._now_ms(), wanted.invisible_ms, 0)
                else:
                    waiter.has_turn = None
                    check()
                    answer = yield from self.pop_steps(wanted, near)
            except Exception as error:
                fail(error)
                return True
            if answer.count or waiter.is_last:
                tell(answer)
                return True
            if answer.is_unfinished:
                self.polling.ring(key)
            return False

        waiter = Waiter(
            peer,
            key,
            wanted.queue_id,
            self.sources.list_waited_queues(wanted),
            wanted.filter_key,
            attempt,
            attempt_id=wanted.attempt_id if wanted.order else None,
        )
        return self.polling.park(waiter, wait_s)

    def _awaits_turn(self, waiter: Waiter, wanted: PopRequest) -> bool:
        """Whether *waiter* is tried later, when its filter may continue."""
        if waiter.has_turn is None and _is_filtered(wanted) and not self.turns.budget.has_room():

            def resume() -> None:
                waiter.has_turn = True
                self.polling.ask(waiter)

            if self.turns.wait(waiter.connection, resume):
                waiter.has_turn = False
        return waiter.has_turn is False

    def _lane(self, wanted: PopRequest, topic: str, queue_id: int, *, retry: bool) -> Lane:
        """Return the lane, with the cursor at the offset where the group continues."""
        lane = self.lanes.get(wanted.group, topic, queue_id)
        reset = self._offsets.take_reset(topic, wanted.group, queue_id)
        committed = self._offsets.get(topic, wanted.group, queue_id)
        if lane is None:
            cursor = reset if reset is not None else committed
            if cursor is None:
                cursor = self._first_offset(topic, queue_id, wanted.from_newest and not retry)
            lane = self.lanes.open(wanted.group, topic, queue_id, cursor)
            self.reviving.commit(lane)
        elif reset is not None:
            self.lanes.moved(lane, reset)
        elif committed is not None and committed > lane.cursor:
            # A pull consumer of the group has committed a later offset.
            if lane.batch is not None:
                self.lanes.ordered(lane, committed, None)
            else:
                self.lanes.popped(lane, committed, 0, 0, ())
        return lane

    def _first_offset(self, topic: str, queue_id: int, from_newest: bool) -> int:
        low, high = self._store.reading.queue_range(topic, queue_id)
        if not from_newest:
            return low
        if self._config.live.initial_offset is InitialOffset.STRICT:
            return high
        # As in RocketMQ: a queue that still has its first message from the start, else the newest
        # message.
        return low if self._store.reading.has_first_message(topic, queue_id) else max(high - 1, 0)

    def _pop_lane(self, wanted: PopRequest, lane: Lane, answer: PopAnswer, *, retry: bool) -> None:
        high = self._store.reading.queue_range(lane.topic, lane.queue_id)[1]
        if lane.cursor == high and lane.batch is None:
            return
        left = wanted.count_max - answer.count
        room = self._settings.in_flight_max - len(lane.entries)
        is_blocked = lane.batch is not None and lane.batch.blocks(
            wanted.attempt_id if wanted.order else None, answer.pop_ms
        )
        if left > 0 and room > 0 and not is_blocked:
            if wanted.order:
                self._in_order.pop(wanted, lane, answer, min(left, room))
            else:
                self._pop_any(wanted, lane, answer, min(left, room), retry=retry)
            self._handle_change(lane)
        reached = lane.batch.offsets[-1] + 1 if lane.batch is not None else lane.cursor
        answer.rest += max(high - max(reached, lane.cursor), 0)

    def _pop_any(
        self, wanted: PopRequest, lane: Lane, answer: PopAnswer, count_max: int, *, retry: bool
    ) -> None:
        if lane.batch is not None:
            self.lanes.ordered(lane, lane.cursor, None)
        # Messages in a retry topic already matched the group's filter.
        subscription = None if retry else wanted.subscription
        start, result = read(self._store, lane, lane.cursor, count_max, subscription, answer)
        found = list(split_records(result.body)) if result.status is GetStatus.FOUND else []
        if retry:
            found = [each for each in found if self._is_for(wanted, lane.topic, each[1])]
        if found or result.next_offset != lane.cursor:
            offsets = [offset for offset, _ in found]
            self.lanes.popped(lane, result.next_offset, answer.pop_ms, wanted.invisible_ms, offsets)
        if found:
            flag = retry_flag(wanted.group, wanted.topic, lane.topic)
            answer.append_messages(
                lane.queue_id, start, found, flag=flag, broker_name=self._config.broker_name
            )

    def _is_for(self, wanted: PopRequest, topic: str, record: bytes) -> bool:
        """Whether a message of a possibly shared retry topic belongs to *wanted*'s group.

        Copies for pulling groups name their topic; other copies name the original message.
        """
        if topic == retry_topic(wanted.group):
            return "_" not in topic or not is_popped_copy(decode_message(record).properties)
        if topic != older_pop_retry_topic(wanted.group, wanted.topic):
            return True
        properties = decode_message(record).properties
        if not is_popped_copy(properties):
            is_others = topic.removeprefix(RETRY_PREFIX) in self._groups
            return not is_others and properties.get(PROPERTY_RETRY_TOPIC, "") in ("", wanted.topic)
        sent = self.reviving.find_sent_topic(properties)
        return sent is None or sent == wanted.topic

    def ack(
        self, group: str, topic: str, queue_id: int, offsets: list[int], info: ExtraInfo
    ) -> None:
        """Settle messages; skip those that are not in flight from this pop.

        Raises:
            Refusal: the offset is not part of an orderly pop. OSError: nothing is settled.
        """
        lane = self.lanes.get(group, topic, queue_id)
        if lane is None:
            return
        if info.is_orderly:
            if self._in_order.ack(lane, offsets, info):
                self._stats.get_ack_traffic(topic, group).count_request(len(offsets), 0)
                self._handle_change(lane)
                if lane.batch is None or not lane.batch.blocks(None, self._now_ms()):
                    self.reviving.ring(lane)
            return
        self.ack_together([(lane, offset, info) for offset in offsets])

    def ack_together(self, acks: Iterable[tuple[Lane, int, ExtraInfo]]) -> None:
        """Settle messages that were not popped in order, with one write.

        Those that are not in flight from the pop in their ExtraInfo are skipped.

        Raises OSError: nothing is settled.
        """
        mine: dict[Lane, dict[int, None]] = {}
        for lane, offset, info in acks:
            if self._entry(lane, offset, info) is not None:
                mine.setdefault(lane, {})[offset] = None
        if not mine:
            return
        full = [lane for lane in mine if len(lane.entries) >= self._settings.in_flight_max]
        self.lanes.acked_together(mine)
        for lane, offsets in mine.items():
            traffic = self._stats.get_ack_traffic(lane.topic, lane.group)
            traffic.count_request(len(offsets), 0)
            self._handle_change(lane)
        for lane in full:
            self.reviving.ring(lane)

    @staticmethod
    def _entry(lane: Lane, offset: int, info: ExtraInfo) -> InFlight | None:
        """The messages in flight from the pop in *info*."""
        entry = lane.entries.get(offset)
        if entry is None or entry.is_copied or entry.pop_ms != info.pop_ms:
            return None
        return entry

    def change_invisible(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        info: ExtraInfo,
        invisible_ms: int,
        *,
        suspend: bool = False,
    ) -> tuple[int, int] | None:
        """Make a message visible again *invisible_ms* from now.

        With *suspend* the next delivery does not count as an attempt.

        Returns its new pop and invisible times; None if it is no longer in flight from this pop.

        Raises:
            OSError: nothing is changed.
        """
        lane = self.lanes.get(group, topic, queue_id)
        if lane is None:
            return None
        now_ms = self._now_ms()
        if info.is_orderly:
            until_ms = now_ms + invisible_ms
            changed = self._in_order.change_invisible(lane, offset, info, until_ms, suspend)
            if changed is not None:
                self._handle_change(lane)
            return changed
        entry = self._entry(lane, offset, info)
        if entry is None:
            return None
        # A new pop time invalidates the client's earlier receipt.
        pop_ms = max(now_ms, entry.pop_ms + 1)
        invisible_ms = max(now_ms + invisible_ms - pop_ms, 0)
        self.lanes.changed(lane, offset, InFlight(pop_ms, invisible_ms, is_suspended=suspend))
        self._stats.get_checkpoint_traffic(topic, group).count_request(1, 0)
        self._handle_change(lane)
        return pop_ms, invisible_ms

    def look_steps(
        self, wanted: PopRequest, near: Queue | None = None
    ) -> Generator[None, None, bool]:
        """Whether the pop would find messages, without filters; in steps, like ``pop_steps``."""
        now_ms = self._now_ms()
        for looked, (topic, queue_id, _) in enumerate(self.sources.list_sources(wanted, near)):
            if looked and looked % QUEUES_PER_SLICE == 0:
                yield
            high = self._store.reading.queue_range(topic, queue_id)[1]
            lane = self.lanes.get(wanted.group, topic, queue_id)
            if lane is not None:
                if lane.batch is not None and lane.batch.blocks(wanted.attempt_id, now_ms):
                    continue
                if len(lane.entries) >= self._settings.in_flight_max:
                    continue
            if high > self._position(wanted.group, topic, queue_id):
                return True
        return False

    def peek_steps(self, wanted: PopRequest) -> Generator[None, None, PopAnswer]:
        """The messages that a pop would hand out; changes nothing. In steps, like ``pop_steps``."""
        answer = PopAnswer(wanted.topic, self._now_ms(), 0, 0)
        for looked, (topic, queue_id, retry) in enumerate(self.sources.list_sources(wanted)):
            if looked and looked % QUEUES_PER_SLICE == 0:
                if answer.count:
                    break
                yield
            start = self._position(wanted.group, topic, queue_id)
            high = self._store.reading.queue_range(topic, queue_id)[1]
            left = wanted.count_max - answer.count
            found: list[tuple[int, bytes]] = []
            if left > 0:
                result = self._store.reading.get_message(topic, queue_id, start, left)
                if result.status is GetStatus.FOUND:
                    found = list(split_records(result.body))
                    start = result.next_offset
                if retry:
                    found = [each for each in found if self._is_for(wanted, topic, each[1])]
                if found:
                    answer.append_messages(
                        queue_id,
                        found[0][0],
                        found,
                        flag=retry_flag(wanted.group, wanted.topic, topic),
                        broker_name=self._config.broker_name,
                    )
            answer.rest += max(high - start, 0)
        return answer

    def _position(self, group: str, topic: str, queue_id: int) -> int:
        pending = self._offsets.pending_reset(topic, group, queue_id)
        if pending is not None:
            return pending
        low = self._store.reading.queue_range(topic, queue_id)[0]
        lane = self.lanes.get(group, topic, queue_id)
        committed = self._offsets.get(topic, group, queue_id)
        return max(low, lane.cursor if lane is not None else 0, committed or 0)


def _is_filtered(wanted: PopRequest) -> bool:
    """Whether the pop filters by an SQL92 expression, whose cost the client determines."""
    return wanted.subscription is not None and wanted.subscription.matches_properties is not None
