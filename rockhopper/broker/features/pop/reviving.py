"""Redelivery of popped messages that were not acknowledged in time.

Each message is stored again: in the group's pop retry topic, ``%RETRY%group+topic``, with its
reconsume count increased; or in ``%DLQ%group`` if it was redelivered retryMaxTimes times, or if its
properties leave no room for the receipt of a redelivery. The original is forgotten only after the
copy is stored, so a crash in between redelivers the message twice.

One timer runs for the earliest visible time. A turn copies at most ``MESSAGES_PER_TURN``. While
the store refuses, everything waits.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import structlog

from rockhopper.broker.features.pop.extra_info import extra_info_size_bytes_max, origin_topic
from rockhopper.broker.features.pop.lanes import Lane
from rockhopper.broker.features.pop.polling import PopPolling
from rockhopper.broker.features.pop.state import PopState
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.server.loop.wall_waits import WallTimer
from rockhopper.broker.store.files.errors import RecordTooLargeError, StoreError
from rockhopper.broker.store.log.encoding import drop_own_properties
from rockhopper.broker.store.put import Copy
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.names import is_retry_topic, pop_retry_topic, retry_topic
from rockhopper.protocol.properties import (
    DEAD_LETTER_OPTIONAL_PROPERTIES,
    PROPERTIES_SIZE_BYTES_MAX,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_POP_CK,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT,
    fit_properties,
    properties_size_bytes,
)
from rockhopper.protocol.store.message_codec import decode_message

log = structlog.get_logger("broker.pop")

MESSAGES_PER_TURN = 64
REFUSED_RETRY_S = 1.0
UNCOPYABLE_RETRY_MS = 3_600_000
_NOT_THERE_YET = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


class Reviving:
    """Copies messages that have become visible again. Belongs to the event loop."""

    def __init__(self, state: PopState, kernel: Kernel, polling: PopPolling) -> None:
        self._settings = kernel.config.pop
        self._receipt_size_bytes_max = extra_info_size_bytes_max(kernel.config.broker_name)
        self._lanes = state.lanes
        self._polling = polling
        self._store = kernel.store
        self._topics = kernel.tables.topics
        self._groups = kernel.tables.groups
        self._offsets = kernel.tables.offsets
        self._stats = kernel.stats
        self._now_ms = state.now_ms
        self.pulling_groups: set[str] = set()
        """Groups that pull and do not pop: their failed messages go to the retry topic that they
        pull."""
        self.popped_topics: dict[str, str] = {}
        """The topic that each group popped last."""
        self._timer = WallTimer(state.now_ms)
        self._is_running = False
        self.revived = 0
        self.revived_of: Counter[tuple[str, str]] = Counter()
        """The number of revived messages by group and topic."""
        self.buried = 0
        self.vanished = 0

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._is_running = True
        self.reschedule()

    def stop(self) -> None:
        """Stop copying."""
        self._is_running = False
        self._timer.cancel()

    def reschedule(self) -> None:
        """Arm the timer for the next due message."""
        due_ms = self._lanes.next_due_ms
        if due_ms is not None and self._is_running:
            self._timer.arm(due_ms, self._run)

    def _run(self) -> None:
        if self.turn():
            self.reschedule()
        else:
            self._timer.retry(REFUSED_RETRY_S, self._run)

    def turn(self) -> bool:
        """Copy some of the due messages; return False if the store accepts none now."""
        self.settle()
        now_ms, left = self._now_ms(), MESSAGES_PER_TURN
        while left > 0:
            due = self._lanes.take_due(now_ms)
            if due is None:
                return True
            lane, offsets = due
            if not offsets:
                self.ring(lane)
                left -= 1
                continue
            left -= len(offsets)
            if not self._revive(lane, offsets, now_ms):
                return False
        return True

    def ring(self, lane: Lane) -> None:
        """Try the pops that wait for a lane, which no ordered batch blocks any more."""
        key = lane.group, origin_topic(lane.group, lane.topic)
        self._polling.ring(key, (lane.topic, lane.queue_id))

    def commit(self, lane: Lane) -> None:
        """Commit the offset of a lane that has fewer messages in flight."""
        if not lane.is_dropped:
            self._offsets.commit(lane.topic, lane.group, lane.queue_id, lane.low_water)

    @property
    def behind_ms(self) -> int:
        """How long the first due message has been due, in milliseconds; 0 if none is."""
        due_ms = self._lanes.next_due_ms
        return 0 if due_ms is None else max(self._now_ms() - due_ms, 0)

    def settle(self) -> None:
        """Remove messages whose copies are on disk."""
        for lane in self._lanes.settle(self._store.log.flushed_offset):
            self.commit(lane)

    def _revive(self, lane: Lane, offsets: list[int], now_ms: int) -> bool:
        group = self._groups.get(lane.group)
        if group is None or lane.topic not in self._topics:
            self._note_written(lambda: self._lanes.drop(lane))
            return True
        if self._offsets.pending_reset(lane.topic, lane.group, lane.queue_id) is not None:
            # An operator moved the group elsewhere; its next pop moves the lane.
            self._note_written(lambda: self._lanes.acked(lane, offsets))
            return True
        copied, gone, late = [], [], []
        refusal: StoreError | None = None
        counted = self.revived, self.buried
        try:
            self._store.check_writable()
            self._store.staging.read_clock()
            for offset in offsets:
                message = self._message(lane, offset)
                if message is None:
                    gone.append(offset)
                elif self._stage(lane, group, offset, message):
                    copied.append(offset)
                else:
                    late.append(offset)
        except StoreError as error:
            refusal = error
        try:
            end = self._store.commit()
        except StoreError as error:
            copied, refusal = [], error
            end = 0
            self.revived, self.buried = counted
        self.revived_of[lane.group, lane.topic] += self.revived - counted[0]
        self._note(lane, copied, gone, late, end, now_ms)
        if refusal is None:
            return True
        log.warning(
            "popped messages wait for redelivery because the store refuses writes",
            reason=str(refusal),
        )
        done = {*copied, *gone, *late}
        left = [offset for offset in offsets if offset not in done]
        if left:
            self._lanes.call_at(now_ms, lane, left)
        return False

    def _note(
        self,
        lane: Lane,
        copied: list[int],
        gone: list[int],
        late: list[int],
        end: int,
        now_ms: int,
    ) -> None:
        if copied:
            self._note_written(lambda: self._lanes.copied(lane, copied, end))
        if gone:
            self.vanished += len(gone)
            log.warning(
                "popped messages were deleted before they were acknowledged",
                topic=lane.topic,
                group=lane.group,
                queue=lane.queue_id,
                first=gone[0],
                count=len(gone),
            )
            self._note_written(lambda: self._lanes.acked(lane, gone))
        for offset in late:
            self._lanes.call_at(now_ms + UNCOPYABLE_RETRY_MS, lane, [offset])
        self.settle()
        self.commit(lane)

    def _note_written(self, change: Callable[[], None]) -> None:
        try:
            change()
        except OSError as error:
            log.error("pop journal not written: messages may be delivered twice", reason=str(error))

    def _message(self, lane: Lane, offset: int) -> StoredMessage | None:
        result = self._store.reading.get_message(lane.topic, lane.queue_id, offset, 1)
        if result.status is not GetStatus.FOUND:
            return None
        try:
            message = decode_message(result.body)
        except ProtocolError:
            return None
        return message if message.queue_offset == offset else None

    def _stage(
        self, lane: Lane, group: SubscriptionGroup, offset: int, message: StoredMessage
    ) -> bool:
        """Stage the copy; return False if no file can hold it. Raises StoreError: retry later."""
        entry = lane.entries[offset]
        is_pulled = lane.topic == retry_topic(lane.group)
        is_given_back = lane.group in self.pulling_groups and not entry.invisible_ms
        origin_name = self._origin(lane, message.properties)
        if origin_name is None:
            return False
        if entry.is_suspended or is_pulled or is_given_back:
            message.reconsume_times -= 1
        elif 0 <= group.retry_max_times <= message.reconsume_times:
            return self.bury(lane, message)
        properties = _properties_of_copy(message)
        properties.setdefault(PROPERTY_FIRST_POP_TIME, str(entry.pop_ms))
        to_pulled = lane.group in self.pulling_groups and not is_pulled
        size_bytes_max = PROPERTIES_SIZE_BYTES_MAX
        if to_pulled:
            properties.setdefault(PROPERTY_RETRY_TOPIC, origin_name)
        else:
            size_bytes_max -= self._receipt_size_bytes_max
        properties = fit_properties(properties, size_bytes_max=size_bytes_max)
        if properties_size_bytes(properties) > size_bytes_max:
            log.error(
                "the properties of a popped message leave no room for those of a redelivery: it "
                "becomes a dead letter",
                topic=lane.topic,
                group=lane.group,
                queue=lane.queue_id,
                queue_offset=offset,
            )
            return self.bury(lane, message)
        if to_pulled:
            topic = self._topics.ensure_retry_topic(lane.group, group.retry_queue_nums)
        else:
            topic = self._retry_topic(lane, origin_name)
        stays = self._settings.separate_retry_queues and lane.queue_id < topic.write_queue_nums
        queue_id = lane.queue_id if stays else 0
        if not self._store_copy(topic.name, message, properties, queue_id):
            return False
        self.revived += 1
        return True

    def bury(self, lane: Lane, message: StoredMessage) -> bool:
        """Stage *message* for the dead letters; return False if no file can hold it.

        Raises:
            StoreError: the store refuses writes now.
        """
        properties = _properties_of_copy(message)
        origin = origin_topic(lane.group, lane.topic)
        properties[PROPERTY_RETRY_TOPIC] = origin
        properties[PROPERTY_DELAY_LEVEL] = "0"
        properties[PROPERTY_WAIT] = "false"
        properties = fit_properties(properties, DEAD_LETTER_OPTIONAL_PROPERTIES)
        topic = self._topics.ensure_dlq_topic(lane.group)
        if not self._store_copy(topic.name, message, properties):
            return False
        self.buried += 1
        self._stats.dead(origin, lane.group).count_request(1, message.size_bytes)
        return True

    def _origin(self, lane: Lane, properties: Mapping[str, str]) -> str | None:
        """Return the topic under which the group receives a message again; None if unknown.

        A message in the retry topic of a pulling group may not name its topic. It then gets the
        topic that the group popped last.
        """
        if lane.topic != retry_topic(lane.group):
            return origin_topic(lane.group, lane.topic)
        named = properties.get(PROPERTY_RETRY_TOPIC) or self.find_sent_topic(properties)
        return named or self.popped_topics.get(lane.group)

    def find_sent_topic(self, properties: Mapping[str, str]) -> str | None:
        """Return the topic of the original message of a copy; None if it is unknown."""
        origin_id = properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "")
        try:
            _, _, log_offset = decode_offset_message_id(origin_id)
            record = self._store.reading.reader.record(log_offset)
            sent = decode_message(record) if record else None
        except (ProtocolError, StoreError, ValueError, LookupError):
            return None
        return None if sent is None or is_retry_topic(sent.topic) else sent.topic

    def _retry_topic(self, lane: Lane, origin_name: str) -> TopicConfig:
        name = pop_retry_topic(lane.group, origin_name)
        known = self._topics.get(name)
        origin = self._topics.get(origin_name)
        count = 1
        if origin is not None and self._settings.separate_retry_queues:
            count = origin.write_queue_nums
        if known is not None and known.write_queue_nums >= count:
            return known
        reads = max(count, known.read_queue_nums if known is not None else 0)
        topic = TopicConfig(name, read_queue_nums=reads, write_queue_nums=count)
        self._topics.put(topic)
        return topic

    def _store_copy(
        self, topic: str, message: StoredMessage, properties: dict[str, str], queue_id: int = 0
    ) -> bool:
        times = message.reconsume_times + 1
        copy = Copy(topic, queue_id, message, properties, reconsume_times=times)
        try:
            self._store.staging.stage_again(copy)
        except RecordTooLargeError as error:
            log.error(
                "a popped message cannot be stored again for redelivery",
                topic=topic,
                reason=str(error),
            )
            return False
        self._stats.get_send_traffic(topic).count_request(1, message.size_bytes)
        return True


def _properties_of_copy(message: StoredMessage) -> dict[str, str]:
    properties = drop_own_properties(message.properties)
    properties.pop(PROPERTY_POP_CK, None)
    properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_message_id)
    return properties
