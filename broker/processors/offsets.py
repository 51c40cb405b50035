"""Offsets of consumers and of queues: codes 14, 15, 29, 30, 31, 32, 43 and 222.

Offsets of a queue are looked up, never created: RocketMQ makes a queue for any name that is asked
about.  Topics that do not exist are answered with 17, queues that do not exist with 29.
"""

import asyncio

import structlog

from broker.config import NewGroupStart
from broker.dispatcher import Request, RequestError, Response
from broker.processors.json_bodies import long_json_response
from broker.processors.parts import BrokerParts
from protocol.bodies import MessageQueueKey, ResetOffsetBody
from protocol.codes import ResponseCode
from protocol.errors import FieldError
from protocol.requests import (
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    ResetOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)

log = structlog.get_logger("broker.admin")

# Queues looked at between two looks at other requests.
QUEUES_PER_TURN = 32


class OffsetProcessors:
    """Serves what consumers and tools ask about offsets."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker

    def query_consumer_offset(self, request: Request) -> Response:
        """14: where a group goes on in a queue.

        A group without an offset starts at 0 while the queue still has its first message, whatever
        its client asked for: messages that were sent before the first heartbeat are not to be
        missed.  newGroupYoungQueue=client leaves it to the client instead, as for older queues.
        """
        fields = request.fields(QueryConsumerOffsetRequest)
        broker = self._broker
        topic, group, queue_id = fields.topic, fields.consumer_group, fields.queue_id
        offset = broker.offsets.pending_reset(topic, group, queue_id)
        if offset is None:
            offset = broker.offsets.get(topic, group, queue_id)
        if offset is not None:
            return _offset(offset)
        if fields.set_zero_if_not_found is False:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        low, high = broker.store.queue_range(topic, queue_id)
        if low == 0 < high and broker.config.new_group_start is NewGroupStart.FIRST:
            return _offset(0)
        raise RequestError(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def update_consumer_offset(self, request: Request) -> Response:
        """15: a group says where it goes on.  Backwards counts too: a consumer may seek."""
        try:
            fields = request.fields(UpdateConsumerOffsetRequest)
        except FieldError as error:
            if error.name in ("queueId", "commitOffset"):
                raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from None
            raise
        broker = self._broker
        if broker.groups.get(fields.consumer_group) is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {fields.consumer_group[:200]} not exist!",
            )
        topic = broker.topics.get(fields.topic)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic {fields.topic[:200]} not exist!"
            )
        self._check_queue(fields.topic, fields.queue_id)
        is_stored = broker.offsets.commit(
            fields.topic,
            fields.consumer_group,
            fields.queue_id,
            fields.commit_offset,
            backward=True,
        )
        return Response(remark=None if is_stored else "Offset has been previously reset")

    def search_by_time(self, request: Request) -> Response:
        """29: the first message at or after a time, or with boundaryType UPPER the last before."""
        fields = request.fields(SearchOffsetRequest)
        self._check_queue(fields.topic, fields.queue_id)
        store = self._broker.store
        low, high = store.queue_range(fields.topic, fields.queue_id)
        offset = store.offset_by_time(
            fields.topic,
            fields.queue_id,
            fields.timestamp,
            upper=(fields.boundary_type or "").upper() == "UPPER",
        )
        return _offset(min(max(offset, low), high))

    def max_offset(self, request: Request) -> Response:
        """30: one past the newest message."""
        fields = request.fields(GetMaxOffsetRequest)
        self._check_queue(fields.topic, fields.queue_id)
        return _offset(self._broker.store.queue_range(fields.topic, fields.queue_id)[1])

    def min_offset(self, request: Request) -> Response:
        """31: the oldest message that is still there."""
        fields = request.fields(GetMinOffsetRequest)
        self._check_queue(fields.topic, fields.queue_id)
        return _offset(self._broker.store.queue_range(fields.topic, fields.queue_id)[0])

    def earliest_store_time(self, request: Request) -> Response:
        """32: when the oldest message was stored, -1 if there is none."""
        fields = request.fields(GetEarliestMsgStoretimeRequest)
        self._check_queue(fields.topic, fields.queue_id)
        time_ms = self._broker.store.earliest_store_time(fields.topic, fields.queue_id)
        return Response(ext={"timestamp": str(time_ms)})

    async def reset_offsets(self, request: Request) -> Response:
        """222: set a group's offsets, to a time or to a number; online or not.

        Each queue hands its new offset out with the next pull (21), and commits do not count until
        then.  A negative time means the end.
        """
        fields = request.fields(ResetOffsetRequest)
        broker = self._broker
        topic = broker.topics.get(fields.topic)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic {fields.topic[:200]} does not exist"
            )
        if broker.groups.get(fields.group) is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {fields.group[:200]} does not exist",
            )
        if fields.queue_id >= 0:
            self._check_queue(topic.name, fields.queue_id)
            wanted = None if fields.offset is None or fields.offset < 0 else fields.offset
            targets = {fields.queue_id: self._target(topic.name, fields, fields.queue_id, wanted)}
        else:
            targets = {}
            for queue_id in range(topic.read_queue_nums):
                if queue_id % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                    await asyncio.sleep(0)
                targets[queue_id] = self._target(topic.name, fields, queue_id, None)
        body = ResetOffsetBody()
        for queue_id, offset in targets.items():
            broker.offsets.reset(topic.name, fields.group, queue_id, offset)
            key = MessageQueueKey(topic.name, broker.config.broker_name, queue_id)
            body.offset_table[key] = offset
        log.info("offsets reset by an administrator", topic=topic.name, group=fields.group)
        return await long_json_response(lambda: body)

    def _target(
        self, topic: str, fields: ResetOffsetRequest, queue_id: int, wanted: int | None
    ) -> int:
        store = self._broker.store
        low, high = store.queue_range(topic, queue_id)
        if wanted is not None:
            if not low <= wanted <= high:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {wanted} not in consume queue range [{low}-{high}]",
                )
            return wanted
        if fields.timestamp < 0:
            return high
        found = store.offset_by_time(topic, queue_id, fields.timestamp, upper=False)
        return min(max(found, low), high)

    async def all_consumer_offsets(self, _request: Request) -> Response:
        """43: the offset table as its file holds it."""
        return await long_json_response(self._broker.offsets.to_json)

    def _check_queue(self, topic: str, queue_id: int) -> None:
        """Refuse what does not exist; a queue beyond a shrunk topic's last may still have data."""
        settings = self._broker.topics.get(topic)
        if settings is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:200]}] not exist, apply first please!"
            )
        count = max(settings.read_queue_nums, settings.write_queue_nums)
        if 0 <= queue_id < count or self._broker.store.queue_range(topic, queue_id)[1] > 0:
            return
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic [{topic}] has {count} queues",
        )


def _offset(offset: int) -> Response:
    return Response(ext={"offset": str(offset)})
