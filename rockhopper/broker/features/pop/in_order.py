"""Orderly pops: one batch of a queue at a time (ordered.py), acknowledged in any order.

A message that was handed out more than retryMaxTimes + 1 times goes to the dead letters, and the
queue continues.
"""

import msgspec

from rockhopper.broker.features.pop.extra_info import NORMAL, ExtraInfo
from rockhopper.broker.features.pop.lanes import Lane, Lanes
from rockhopper.broker.features.pop.ordered import OrderedBatch
from rockhopper.broker.features.pop.reading import PopAnswer, PopRequest, split_records
from rockhopper.broker.features.pop.reviving import Reviving
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.users.errors import IllegalMessage
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.subscription import Subscription

READS_PER_QUEUE = 8
_AT_THE_END = (
    GetStatus.FOUND,
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.OFFSET_OVERFLOW_ONE,
)


def read(
    store: MessageStore,
    lane: Lane,
    start: int,
    count_max: int,
    subscription: Subscription | None,
    answer: PopAnswer,
) -> tuple[int, GetResult]:
    """Messages from *start* on, without gaps and filtered messages; and their first offset."""
    is_filtered = subscription is not None and subscription.matches_properties is not None
    for _ in range(READS_PER_QUEUE):
        result = store.reading.get_message(
            lane.topic, lane.queue_id, start, count_max, subscription
        )
        if result.status in _AT_THE_END or result.next_offset == start:
            return start, result
        start = result.next_offset
        if is_filtered and not store.reading.reader.budget.has_room():
            break
    answer.is_unfinished = True
    return start, result


class InOrder:
    """The differences between orderly pops and others."""

    def __init__(
        self,
        config: BrokerConfig,
        lanes: Lanes,
        store: MessageStore,
        groups: SubscriptionGroupTable,
        reviving: Reviving,
    ) -> None:
        self._config = config
        self._lanes = lanes
        self._store = store
        self._groups = groups
        self._reviving = reviving

    def pop(self, wanted: PopRequest, lane: Lane, answer: PopAnswer, count_max: int) -> None:
        """Hand out the next messages; none after an OSError or StoreError."""
        batch = lane.batch
        buried: set[int] = set()
        start = lane.cursor
        while True:
            while start in buried:
                start += 1
            start, result = read(self._store, lane, start, count_max, wanted.subscription, answer)
            if result.status is not GetStatus.FOUND:
                if batch is None or batch.compute_blocked_until() == 0:
                    self._move_in_order(lane, result.next_offset)
                return
            found = [item for item in split_records(result.body) if item[0] not in buried]
            offsets = [offset for offset, _ in found]
            if offsets:
                pop_ms, invisible_ms = answer.pop_ms, wanted.invisible_ms
                if batch is None:
                    following = OrderedBatch(wanted.attempt_id, pop_ms, invisible_ms, offsets)
                else:
                    following = batch.successor(wanted.attempt_id, pop_ms, invisible_ms, offsets)
                exhausted = self._list_exhausted(lane, following, found, answer)
                if not exhausted:
                    break
                buried |= exhausted
                if batch is not None:
                    batch = msgspec.structs.replace(batch, acked=batch.acked | exhausted)
                    self._lanes.ordered(lane, batch.next_offset(), batch)
            start = result.next_offset
            if offsets:
                start = max(offsets[0], lane.cursor)
        self._lanes.ordered(lane, offsets[0], following)
        self._lanes.call_at(following.compute_blocked_until(), lane)
        answer.append_messages(
            lane.queue_id, start, found, flag=NORMAL, broker_name=self._config.broker_name
        )
        answer.add_order_counts(lane.queue_id, offsets, following.counts)

    def _move_in_order(self, lane: Lane, cursor: int) -> None:
        if cursor != lane.cursor or lane.batch is not None:
            self._lanes.ordered(lane, cursor, None)

    def _list_exhausted(
        self,
        lane: Lane,
        batch: OrderedBatch,
        found: list[tuple[int, bytes]],
        answer: PopAnswer,
    ) -> set[int]:
        """Move messages that were handed out too often to the dead letters. Raises StoreError."""
        group = self._groups.get(lane.group)
        times_max = group.retry_max_times if group is not None else -1
        if times_max < 0:
            return set()
        doomed = {
            offset: record for offset, record in found if batch.counts.get(offset, 0) > times_max
        }
        if not doomed:
            return set()
        self._store.check_writable()
        self._store.staging.read_clock()
        buried = []
        for offset, record in doomed.items():
            message = decode_message(record)
            message.reconsume_times = times_max
            if self._reviving.bury(lane, message):
                buried.append(offset)
        end = self._store.commit()
        # Until the dead letters are on disk the group's offset stays in front of them.
        self._lanes.popped(lane, lane.cursor, answer.pop_ms, batch.invisible_ms, buried)
        self._lanes.copied(lane, buried, end)
        return set(buried)

    def ack(self, lane: Lane, offsets: list[int], info: ExtraInfo) -> bool:
        """Acknowledge messages of the batch; return False if that changes nothing.

        Raises:
            Refusal: an offset is not in the batch.
            OSError: nothing is acknowledged.
        """
        batch = lane.batch
        offsets = [offset for offset in offsets if offset >= lane.cursor]
        if not offsets or batch is None or batch.pop_ms != info.pop_ms:
            return False
        for offset in offsets:
            if offset not in batch.offsets:
                raise IllegalMessage(
                    f"offset is illegal, key:{lane.topic}@{lane.group}@{lane.queue_id}, "
                    f"old:{lane.cursor}, commit:{offset}, next:-1"
                )
        until_ms = batch.compute_blocked_until()
        batch = msgspec.structs.replace(batch, acked=batch.acked | set(offsets))
        self._lanes.ordered(lane, batch.next_offset(), batch)
        if 0 < batch.compute_blocked_until() < until_ms:
            # The remaining messages were postponed.
            self._lanes.call_at(batch.compute_blocked_until(), lane)
        return True

    def change_invisible(
        self, lane: Lane, offset: int, info: ExtraInfo, visible_ms: int, suspend: bool
    ) -> tuple[int, int] | None:
        """As PopService.change_invisible; the pop time stays."""
        batch = lane.batch
        if (
            batch is None
            or batch.pop_ms != info.pop_ms
            or offset not in batch.offsets
            or offset in batch.acked
        ):
            return None
        batch = msgspec.structs.replace(
            batch,
            visible_at={**batch.visible_at, offset: visible_ms},
            suspended=batch.suspended | {offset} if suspend else batch.suspended - {offset},
        )
        self._lanes.ordered(lane, lane.cursor, batch)
        self._lanes.call_at(batch.compute_blocked_until(), lane)
        return batch.pop_ms, visible_ms - batch.pop_ms
