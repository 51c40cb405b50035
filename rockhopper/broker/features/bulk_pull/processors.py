"""BULK_PULL and BULK_PULL_QUEUES: reads of megabytes, for jobs that decode many messages at once.

The checks are those of a pull with its own filter, but nothing waits: the answer is immediate.
Unlike an ordinary pull, it is not limited to 32 messages or 256 KiB. It also reads queues that
still contain messages after the number of the topic's queues was reduced.
"""

from dataclasses import dataclass

from rockhopper.broker.kernel.processors.pulls import PULL_CODES, RequestReply, pull_response
from rockhopper.broker.kernel.pull.puller import Pull, Puller, PullOutcome, outcome_of
from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, serves
from rockhopper.broker.server.remoting.permissions import (
    RequiredPermission,
    name_optional_field,
    on_topic,
)
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import InvalidParameter, TopicNotFound
from rockhopper.protocol.bodies.queue_ranges import (
    QueueRead,
    decode_queue_ranges,
    encode_queue_ranges,
)
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP
from rockhopper.protocol.requests.extensions import BulkPullQueuesRequest, BulkPullRequest

PERMISSIONS = (
    on_topic(Action.SUB),
    RequiredPermission((Action.SUB,), ResourceKind.GROUP, name_optional_field("consumerGroup")),
)
SIZE_BYTES_MAX = 8 << 20
COUNT_MAX = 16_384
FLAG_SUBSCRIPTION = 4
# The number of queues to read before the event loop continues.
SLICE_COUNT = 32


@dataclass(eq=False, repr=False)
class BulkPullProcessor:
    """Serves bulk pulls."""

    _store: MessageStore
    _topic_ids: TopicIds
    _stats: BrokerStats
    _puller: Puller
    _topics: TopicTable

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            RequestCode.BULK_PULL: serves(self.process, *PERMISSIONS, promises_state=False),
            RequestCode.BULK_PULL_QUEUES: serves(
                self.process_queues, *PERMISSIONS, promises_state=False
            ),
        }

    def process(self, request: Request) -> Response:
        """Return up to ``maxBytes`` of records from ``offset`` to before ``endOffset``."""
        fields = request.fields(BulkPullRequest)
        _check_size(fields.max_bytes)
        self._check_id(fields.topic, fields.topic_id)
        pull = _pull(request, fields, fields.queue_id, fields.offset, fields.end_offset)
        subscription = self._puller.check(pull, is_left=self._is_left(pull))
        if subscription is None:
            outcome, result = self._read(pull, min(fields.max_bytes, SIZE_BYTES_MAX))
        else:
            outcome, result = self._count_result(
                pull,
                self._store.reading.get_message(
                    pull.topic, pull.queue_id, pull.offset, pull.count_max, subscription
                ),
            )
        return pull_response(outcome, result)

    async def process_queues(self, request: Request) -> Response:
        """Return the same for many queues of a topic, each with its own range, without a filter."""
        fields = request.fields(BulkPullQueuesRequest)
        _check_size(fields.max_bytes)
        wanted = decode_queue_ranges(request.body)
        self._check_id(fields.topic, fields.topic_id)
        room = min(fields.max_bytes, SIZE_BYTES_MAX)
        reads: list[QueueRead] = []
        for number, each in enumerate(wanted):
            if number % SLICE_COUNT == SLICE_COUNT - 1:
                await next_slice()
                self._check_id(fields.topic, fields.topic_id)
            if reads and room <= 0:
                break
            pull = _pull(request, fields, each.queue_id, each.offset, each.end_offset)
            self._puller.check(pull, is_left=self._is_left(pull))
            outcome, found = self._read(pull, max(room, 1))
            room -= len(found.body)
            reads.append(
                QueueRead(
                    PULL_CODES[outcome],
                    found.next_offset,
                    found.min_offset,
                    found.max_offset,
                    bytes(found.body),
                )
            )
        left = self._list_left_queues(fields.topic)
        ext = {"leftQueues": ",".join(map(str, left))} if left else None
        return Response(body=encode_queue_ranges(reads), ext=ext)

    def _is_left(self, pull: Pull) -> bool:
        topic = self._topics.get(pull.topic)
        if topic is None or pull.queue_id < topic.read_queue_nums:
            return False
        return self._store.reading.queue_range(pull.topic, pull.queue_id)[1] > 0

    def _list_left_queues(self, name: str) -> list[int]:
        """Return the queues beyond the topic's last one that contain messages."""
        topic = self._topics.get(name)
        count = 0 if topic is None else topic.read_queue_nums
        beyond = [number for number in self._store.reading.queue_ids(name) if number >= count]
        ranges = {
            number: self._store.reading.queue_range(name, number) for number in sorted(beyond)
        }
        return [number for number, (low, high) in ranges.items() if low < high]

    def _check_id(self, topic: str, topic_id: str | None) -> None:
        if topic_id and topic_id != self._topic_ids.find(topic):
            raise TopicNotFound(
                f"topic {topic} with the id {topic_id[:40]} does not exist: it was deleted, and "
                "perhaps created again"
            )

    def _read(self, pull: Pull, size_max_bytes: int) -> tuple[PullOutcome, GetResult]:
        found = self._store.reading.get_bulk(
            pull.topic, pull.queue_id, pull.offset, pull.count_max, size_max_bytes
        )
        return self._count_result(pull, found)

    def _count_result(self, pull: Pull, found: GetResult) -> tuple[PullOutcome, GetResult]:
        if found.status is GetStatus.FOUND:
            self._stats.get_found += 1
            self._stats.get_pull_traffic(pull.topic, pull.group).count_request(
                found.count, len(found.body)
            )
            return PullOutcome.FOUND, found
        self._stats.get_missed += 1
        return outcome_of(found.status, pull.offset), found


def _check_size(max_bytes: int) -> None:
    if max_bytes <= 0:
        raise InvalidParameter(f"maxBytes is {max_bytes}; 4194304 is usual")


def _pull(
    request: Request,
    fields: BulkPullRequest | BulkPullQueuesRequest,
    queue_id: int,
    offset: int,
    end_offset: int,
) -> Pull:
    count_max = COUNT_MAX
    if end_offset >= 0:
        count_max = min(count_max, end_offset - offset)
        if count_max <= 0:
            raise InvalidParameter(
                f"there is nothing between offset {offset} and endOffset {end_offset}"
            )
    filtered = fields if isinstance(fields, BulkPullRequest) else None
    return Pull(
        request.connection,
        False,
        fields.consumer_group or TOOLS_CONSUMER_GROUP,
        fields.topic,
        queue_id,
        offset,
        count_max,
        FLAG_SUBSCRIPTION,
        0,
        0,
        filtered.expression if filtered else None,
        filtered.expression_type if filtered else None,
        0,
        RequestReply(request),
    )
