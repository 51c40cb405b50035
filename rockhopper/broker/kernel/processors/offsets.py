"""Offsets of consumers and of queues: codes 14, 15, 29, 30, 31, 32 and 43.

A query never creates a queue; RocketMQ creates one for any requested name. A missing topic is
answered with 17, a missing queue with 29. LOG_HISTORY (70020) tells up to where a reader's
positions belong to the present log.
"""

from dataclasses import dataclass

from rockhopper.broker.kernel.members.consumer_groups import PULLING, ConsumerGroups
from rockhopper.broker.kernel.pull.reader_positions import ReaderPositions
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.log_history import LogHistory
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    administers,
    serves,
)
from rockhopper.broker.server.remoting.json_bodies import long_json_response
from rockhopper.broker.server.remoting.permissions import (
    SEE_CLUSTER,
    RequiredPermission,
    on_topic,
    on_topic_and_group,
)
from rockhopper.broker.settings.live_settings import InitialOffset, LiveSettings
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import GroupNotFound, InvalidParameter, TopicNotFound
from rockhopper.protocol.bodies.log_history import (
    IDS_MAX,
    QUEUES_MAX,
    HistoryAnswer,
    decode_history_question,
    encode_history,
)
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.names import RETRY_PREFIX
from rockhopper.protocol.requests import (
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)

# Each queue takes some twenty lookups.
_QUEUES_PER_TURN = 64
COMPARED = RequiredPermission(
    (Action.SUB,),
    ResourceKind.TOPIC,
    lambda request: {topic for topic, _ in decode_history_question(request.body).queues},
)


@dataclass(eq=False, repr=False)
class OffsetProcessors:
    """Serves queries and commits of offsets."""

    _live: LiveSettings
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _offsets: ConsumerOffsetTable
    _consumers: ConsumerGroups
    _positions: ReaderPositions

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.QUERY_CONSUMER_OFFSET: serves(
                self.query_consumer_offset,
                *on_topic_and_group(Action.SUB, Action.GET),
                promises_state=False,
            ),
            Code.UPDATE_CONSUMER_OFFSET: serves(
                self.update_consumer_offset, *on_topic_and_group(Action.SUB, Action.UPDATE)
            ),
            Code.SEARCH_OFFSET_BY_TIMESTAMP: serves(
                self.search_by_time, on_topic(Action.SUB, Action.GET), promises_state=False
            ),
            Code.GET_MAX_OFFSET: serves(
                self.max_offset, on_topic(Action.SUB, Action.GET), promises_state=False
            ),
            Code.GET_MIN_OFFSET: serves(
                self.min_offset, on_topic(Action.SUB, Action.GET), promises_state=False
            ),
            Code.GET_EARLIEST_MSG_STORETIME: serves(
                self.earliest_store_time, on_topic(Action.SUB, Action.GET), promises_state=False
            ),
            Code.GET_ALL_CONSUMER_OFFSET: administers(
                self.all_consumer_offsets, SEE_CLUSTER, promises_state=False
            ),
        }

    def query_consumer_offset(self, request: Request) -> Response:
        """14: return a group's offset in a queue.

        A group without an offset starts at the first message as long as the queue still has it,
        whatever its client requested, so that messages sent before the first heartbeat are not
        missed. For older queues, and with initialOffset=strict for all, the client decides, except
        for messages that the group itself sent back for redelivery.
        """
        fields = request.fields(QueryConsumerOffsetRequest)
        topic, group, queue_id = fields.topic, fields.consumer_group, fields.queue_id
        offset = self._offsets.pending_reset(topic, group, queue_id)
        if offset is None:
            offset = self._offsets.get(topic, group, queue_id)
        if offset is not None:
            return _offset(offset)
        if fields.set_zero_if_not_found is False:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        low, high = self._store.reading.queue_range(topic, queue_id)
        if low < high and topic.startswith(RETRY_PREFIX):
            return _offset(low)
        is_young = self._store.reading.has_first_message(topic, queue_id)
        if is_young and low < high and self._live.initial_offset is InitialOffset.COMPAT:
            return _offset(low)
        raise RequestError(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def update_consumer_offset(self, request: Request) -> Response:
        """15: commit a group's offset.

        Commits of running consumers only move forward; see ``_may_go_back``.
        """
        try:
            fields = request.fields(UpdateConsumerOffsetRequest)
        except FieldError as error:
            if error.name in ("queueId", "commitOffset"):
                raise InvalidParameter(str(error)) from None
            raise
        if self._groups.get(fields.consumer_group) is None:
            raise GroupNotFound(f"Group {fields.consumer_group} not exist!")
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise TopicNotFound(f"Topic {fields.topic} not exist!")
        check_queue(self._topics, self._store, fields.topic, fields.queue_id)
        topic_name, group, queue_id = fields.topic, fields.consumer_group, fields.queue_id
        online = self._consumers.get(group)
        if online is None or request.connection not in online.members:
            # A Java 4 client continues to commit while it waits for pulls that the restart
            # interrupted.
            self._consumers.seen_early(group, request.connection)
        if self._is_of_the_past(request, fields):
            return Response(
                remark=(
                    f"Offset {fields.commit_offset} is not stored: the log was cut before it "
                    "since the client read it; the next pull returns where to continue"
                )
            )
        is_stored = self._offsets.commit(
            topic_name,
            group,
            queue_id,
            fields.commit_offset,
            backward=self._may_go_back(request, fields),
        )
        if not is_stored:
            return Response(remark="Offset has been previously reset")
        committed = self._offsets.get(topic_name, group, queue_id)
        if committed is not None and 0 <= fields.commit_offset < committed:
            return Response(
                remark=(
                    f"Offset stays at {committed}: members of a group only move it forward; only "
                    "an operator's reset moves it back"
                )
            )
        return Response()

    def _is_of_the_past(self, request: Request, fields: UpdateConsumerOffsetRequest) -> bool:
        """Return whether a consumer commits a position that belongs to an older history of the log.

        Consumers commit remembered positions one-way; a client that waits for the answer means
        the offset that it sends.
        """
        return not self._positions.may_commit(
            request.connection,
            fields.consumer_group,
            fields.topic,
            fields.queue_id,
            fields.commit_offset,
            is_explicit=not request.oneway,
        )

    def _may_go_back(self, request: Request, fields: UpdateConsumerOffsetRequest) -> bool:
        """Return whether a smaller offset is intended, and not a late commit of a former owner.

        It is intended if the sender waits for the answer and is a tool (not a member) or a consumer
        that chooses its positions itself. If the queue now ends before the committed offset, every
        commit is accepted.
        """
        online = self._consumers.get(fields.consumer_group)
        if online is None or request.connection not in online.members:
            means_it = not request.oneway
        else:
            means_it = online.settings_of(request.connection).consume_type == PULLING
        if means_it:
            return True
        committed = self._offsets.get(fields.topic, fields.consumer_group, fields.queue_id)
        end = self._store.reading.queue_range(fields.topic, fields.queue_id)[1]
        return committed is not None and committed > end

    def search_by_time(self, request: Request) -> Response:
        """29: return the first message at or after a time; with type UPPER, the last before."""
        fields = request.fields(SearchOffsetRequest)
        check_queue(self._topics, self._store, fields.topic, fields.queue_id)
        store = self._store
        low, high = store.reading.queue_range(fields.topic, fields.queue_id)
        offset = store.reading.offset_by_time(
            fields.topic,
            fields.queue_id,
            fields.timestamp,
            upper=(fields.boundary_type or "").upper() == "UPPER",
        )
        found = min(max(offset, low), high)
        self._positions.tell(request.connection, fields.topic, fields.queue_id, found)
        return _offset(found)

    def max_offset(self, request: Request) -> Response:
        """30: return the offset after the newest message."""
        fields = request.fields(GetMaxOffsetRequest)
        check_queue(self._topics, self._store, fields.topic, fields.queue_id)
        high = self._store.reading.queue_range(fields.topic, fields.queue_id)[1]
        self._positions.tell(request.connection, fields.topic, fields.queue_id, high)
        return _offset(high)

    def min_offset(self, request: Request) -> Response:
        """31: return the offset of the oldest message; -1 in a new queue of type BatchCQ."""
        fields = request.fields(GetMinOffsetRequest)
        check_queue(self._topics, self._store, fields.topic, fields.queue_id)
        low, high = self._store.reading.queue_range(fields.topic, fields.queue_id)
        if high == 0 and self._topics.is_batch(fields.topic):
            low = -1
        return _offset(low)

    def earliest_store_time(self, request: Request) -> Response:
        """32: return the store time of the oldest message, -1 if there is none."""
        fields = request.fields(GetEarliestMsgStoretimeRequest)
        check_queue(self._topics, self._store, fields.topic, fields.queue_id)
        time_ms = self._store.reading.earliest_store_time(fields.topic, fields.queue_id)
        return Response(ext={"timestamp": str(time_ms)})

    async def all_consumer_offsets(self, _request: Request) -> Response:
        """43: return the offset table in its file's format."""
        return await long_json_response(self._offsets.to_json)


def check_queue(topics: TopicTable, store: MessageStore, topic: str, queue_id: int) -> None:
    """Refuse a missing queue; a queue that its topic no longer includes may still have messages."""
    settings = topics.get(topic)
    if settings is None:
        raise TopicNotFound(f"topic[{topic}] not exist, apply first please!")
    count = max(settings.read_queue_nums, settings.write_queue_nums)
    if 0 <= queue_id < count or store.reading.queue_range(topic, queue_id)[1] > 0:
        return
    raise InvalidParameter(f"queueId[{queue_id}] is illegal, topic [{topic}] has {count} queues")


def _offset(offset: int) -> Response:
    return Response(ext={"offset": str(offset)})


@dataclass(eq=False, repr=False)
class LogHistoryProcessor:
    """Serves the history of the log."""

    _store: MessageStore
    _history: LogHistory
    _positions: ReaderPositions

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.LOG_HISTORY: serves(self.process, COMPARED, promises_state=False),
        }

    async def process(self, request: Request) -> Response:
        """Return the newest epochs, once they are on disk, and the ends of the queues.

        Afterwards the reader's commits are accepted unchecked, because it has compared its
        positions.
        """
        question = decode_history_question(request.body)
        if len(question.known_ids) > IDS_MAX or len(question.queues) > QUEUES_MAX:
            raise InvalidParameter(
                f"{len(question.known_ids)} epochs and {len(question.queues)} queues; at most "
                f"{IDS_MAX} and {QUEUES_MAX} are allowed: send several requests"
            )
        past = self._history.compare(question.known_ids)
        ends: list[int | None] = []
        for number, (topic, queue_id) in enumerate(question.queues):
            if number % _QUEUES_PER_TURN == _QUEUES_PER_TURN - 1:
                await next_slice()
            ends.append(
                None
                if past.end_offset is None
                else self._store.reading.queue_end_at(topic, queue_id, past.end_offset)
            )
            if question.group is not None:
                self._positions.claim(request.connection, question.group, topic, queue_id)
        await self._history.saved()
        answer = HistoryAnswer(self._history.ids(IDS_MAX), past.id, ends)
        return Response(body=encode_history(answer))
