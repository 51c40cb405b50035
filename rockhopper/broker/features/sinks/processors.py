"""The sink codes (70002 to 70005, 70008, 70014, 70015): stage a batch, publish it once, and so on.

broker/features/sinks/publisher.py defines their guarantees; docs/request-codes.md describes them
for authors of clients.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from rockhopper.broker.features.sinks.appender import REFUSED_PROPERTIES
from rockhopper.broker.features.sinks.publisher import SinkError, SinkPublisher
from rockhopper.broker.features.sinks.runs import messages_of, plain_count
from rockhopper.broker.features.sinks.staged_parts import is_part_name
from rockhopper.broker.features.sinks.state import SINK
from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, serves
from rockhopper.broker.server.remoting.permissions import (
    ExaminedRequest,
    RequiredPermission,
    name_field,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import (
    IllegalMessage,
    IllegalOperation,
    InvalidParameter,
    NoPermission,
    TopicNotFound,
)
from rockhopper.protocol.bodies.sinks import (
    SinkMessage,
    SinkPart,
    SinkRun,
    decode_sink_item,
    decode_sink_part_names,
    decode_sink_parts,
    decode_sink_shares,
    encode_sink_body,
    split_sink_items,
)
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.errors import MalformedBatchError
from rockhopper.protocol.names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    topic_error,
)
from rockhopper.protocol.properties import PROPERTY_DELAY_LEVEL, decode_properties
from rockhopper.protocol.requests import encode_fields
from rockhopper.protocol.requests.extensions import (
    SinkBatchRequest,
    SinkDecideResponse,
    SinkHomeRequest,
    SinkPublishResponse,
    SinkStageRequest,
    SinkStageResponse,
    SinkStatusRequest,
    SinkStatusResponse,
)

SINK_ID_LENGTH_MAX = 255
# The number of messages to check before the event loop continues.
SLICE_COUNT = 4096
DEFAULT_QUEUE_NUMS = 4
# The rest is reserved for properties that the broker adds.
PROPERTIES_SIZE_BYTES_MAX = 32_000
RESERVED_BYTES = 32_767 - PROPERTIES_SIZE_BYTES_MAX


def _list_staged_topics(request: ExaminedRequest) -> Iterable[str]:
    return {decode_sink_item(part).topic for part in split_sink_items(request.body)}


PUBLISHING = RequiredPermission((Action.PUB,), SINK, name_field("sinkId"))
STAGED_TOPICS = RequiredPermission((Action.PUB,), ResourceKind.TOPIC, _list_staged_topics)


@dataclass(eq=False, repr=False)
class SinkProcessors:
    """Serves sinks."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _timers: Timers
    _sinks: SinkPublisher
    _now_ms: Callable[[], int]

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            RequestCode.SINK_STAGE: serves(self.stage, PUBLISHING, STAGED_TOPICS),
            RequestCode.SINK_PUBLISH: serves(self.publish, PUBLISHING),
            RequestCode.SINK_STATUS: serves(self.status, PUBLISHING, promises_state=False),
            RequestCode.SINK_ABORT: serves(self.abort, PUBLISHING),
            RequestCode.SINK_HOME: serves(self.home, PUBLISHING, promises_state=False),
            RequestCode.SINK_PREPARE: serves(self.prepare, PUBLISHING),
            RequestCode.SINK_DECIDE: serves(self.decide, PUBLISHING),
        }

    async def stage(self, request: Request) -> Response:
        """70002: add messages to a part. They are validated now, so that publishing cannot fail."""
        fields = request.fields(SinkStageRequest)
        _check_sink(fields.sink_id, fields.batch_id, fields.owner)
        if not is_part_name(fields.part):
            raise InvalidParameter(
                f"a part cannot be named {fields.part!r}: use letters, digits, . and _"
            )
        if fields.sequence < 0:
            raise InvalidParameter(f"the sequence is {fields.sequence}; it starts at 0")
        self._store.check_writable()
        parts = split_sink_items(request.body)
        topics: dict[str, TopicConfig] = {}
        count, slice_end = 0, SLICE_COUNT
        for part in parts:
            if count >= slice_end:
                slice_end = count + SLICE_COUNT
                await next_slice()
            item = decode_sink_item(part)
            topic = topics.get(item.topic)
            if topic is None:
                topic = topics[item.topic] = self._topic(item.topic)
            if isinstance(item, SinkMessage):
                self._check(item, topic)
                count += 1
            else:
                count += self._count(item, topic)
        try:
            staged = self._sinks.stage(
                fields.sink_id,
                fields.batch_id,
                fields.part,
                fields.sequence,
                request.body,
                count,
                topics,
                fields.owner,
            )
        except SinkError as error:
            raise IllegalOperation(str(error)) from None
        return Response(ext=encode_fields(SinkStageResponse(message_count=staged)))

    def _topic(self, name: str) -> TopicConfig:
        problem = topic_error(name)
        if problem is not None:
            raise InvalidParameter(problem)
        if name in NOT_SENDABLE_TOPICS or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise NoPermission(f"Sending message to topic[{name}] is forbidden.")
        topics = self._topics
        topic = topics.get(name)
        if topic is None:
            topic = topics.create_on_send(name, AUTO_CREATE_TOPIC, DEFAULT_QUEUE_NUMS)
        if topic is None:
            raise TopicNotFound(
                f"topic[{name}] does not exist, and topics are not created on first use: create "
                "it first (rockhopper topic create)"
            )
        if not topic.is_writable or not self._config.live.is_writable:
            raise NoPermission(f"the topic[{name}] sending message is forbidden")
        if topics.is_batch(name):
            raise InvalidParameter(f"topic {name} is of type BatchCQ, to which a sink cannot write")
        return topic

    def _count(self, run: SinkRun, topic: TopicConfig) -> int:
        """Return the number of messages in a run, after validating them like single ones."""
        _check_queue(run.queue_id, topic)
        _check_born_time(run.born_time_ms)
        if len(run.messages) <= self._config.store.live.message_size_max_bytes:
            count = plain_count(run, RESERVED_BYTES)
            if count:
                return count
        try:
            messages = messages_of(run)
        except MalformedBatchError as error:
            raise InvalidParameter(f"a run of messages is malformed: {error}") from None
        for message in messages:
            self._check(message, topic)
        return len(messages)

    def _check(self, message: SinkMessage, topic: TopicConfig) -> None:
        _check_queue(message.queue_id, topic)
        most = self._config.store.live.message_size_max_bytes
        if len(message.body) > most:
            raise IllegalMessage(
                f"a body has {len(message.body)} bytes; at most {most} are allowed (maxMessageSize)"
            )
        properties = message.properties
        if len(properties) > PROPERTIES_SIZE_BYTES_MAX // 4 and (
            len(properties.encode("utf-8", "replace")) > PROPERTIES_SIZE_BYTES_MAX
        ):
            raise IllegalMessage(
                f"the properties of a message take more than {PROPERTIES_SIZE_BYTES_MAX} bytes"
            )
        if not -(2**31) <= message.flag < 2**31:
            raise InvalidParameter(f"the flag {message.flag} does not fit 32 bits")
        _check_born_time(message.born_time_ms)
        if any(name in properties for name in REFUSED_PROPERTIES):
            wrong = REFUSED_PROPERTIES.intersection(decode_properties(properties))
            if wrong:
                raise InvalidParameter(
                    f"a message has the property {min(wrong)}, which only the broker may set"
                )
        if "DELAY\x01" in properties:
            level = decode_properties(properties).get(PROPERTY_DELAY_LEVEL, "0")
            if not level.isdecimal():
                raise InvalidParameter(f"the property DELAY is {level!r}, not a delay level")
        elif "TIMER_" in properties or "__STARTDELIVERTIME" in properties:
            self._timers.due_ms(decode_properties(properties), self._now_ms())

    async def publish(self, request: Request) -> Response:
        """70003: publish a batch; answer once all of it is readable and on disk."""
        content = request.fields(SinkBatchRequest).content
        return await self._take_parts(request, partial(self._sinks.publish, content=content))

    async def _take_parts(
        self,
        request: Request,
        step: Callable[[str, int, list[SinkPart], str], Awaitable[tuple[int, bool]]],
    ) -> Response:
        """Run *step* on the parts of a batch.

        Answer with its count, and whether it was a repetition.
        """
        fields = request.fields(SinkBatchRequest)
        _check_sink(fields.sink_id, fields.batch_id, fields.owner)
        try:
            count, repeated = await step(
                fields.sink_id, fields.batch_id, decode_sink_parts(request.body), fields.owner
            )
        except SinkError as error:
            raise IllegalOperation(str(error)) from None
        known = self._sinks.content(fields.sink_id, fields.batch_id) or None
        answer = SinkPublishResponse(message_count=count, repeated=repeated, content=known)
        return Response(ext=encode_fields(answer))

    async def prepare(self, request: Request) -> Response:
        """70014: store parts on disk until their batch is published."""
        return await self._take_parts(request, self._sinks.prepare)

    async def decide(self, request: Request) -> Response:
        """70015: decide which parts on which brokers form a batch, or return the decision."""
        fields = request.fields(SinkBatchRequest)
        _check_sink(fields.sink_id, fields.batch_id, fields.owner)
        shares = decode_sink_shares(request.body)
        try:
            batch_id, decided = await self._sinks.decide(
                fields.sink_id, fields.batch_id, shares, fields.owner, fields.content
            )
        except SinkError as error:
            raise IllegalOperation(str(error)) from None
        known = self._sinks.content(fields.sink_id, batch_id) or None
        return Response(
            ext=encode_fields(SinkDecideResponse(batch_id=batch_id, content=known)),
            body=encode_sink_body(decided),
        )

    def status(self, request: Request) -> Response:
        """70004: return the last published batch of a sink."""
        fields = request.fields(SinkStatusRequest)
        _check_sink(fields.sink_id, 0)
        sinks = self._sinks
        return Response(
            ext=encode_fields(
                SinkStatusResponse(
                    last_batch_id=sinks.last_batch_id(fields.sink_id),
                    staged_bytes=sinks.staged_bytes,
                    owner=sinks.owner(fields.sink_id) or None,
                    home=sinks.home(fields.sink_id) or None,
                )
            )
        )

    def abort(self, request: Request) -> Response:
        """70005: delete parts of a batch; does nothing to a published batch."""
        fields = request.fields(SinkBatchRequest)
        _check_sink(fields.sink_id, fields.batch_id, fields.owner)
        self._sinks.abort(fields.sink_id, fields.batch_id, decode_sink_part_names(request.body))
        return Response()

    async def home(self, request: Request) -> Response:
        """70008: store which other broker publishes the batches of a sink."""
        fields = request.fields(SinkHomeRequest)
        _check_sink(fields.sink_id, 0)
        if not 0 < len(fields.broker) <= SINK_ID_LENGTH_MAX:
            raise InvalidParameter(f"a broker's name has 1 to {SINK_ID_LENGTH_MAX} characters")
        try:
            await self._sinks.note_home(fields.sink_id, fields.broker)
        except SinkError as error:
            raise IllegalOperation(str(error)) from None
        return Response()


def _check_queue(queue_id: int, topic: TopicConfig) -> None:
    if not -1 <= queue_id < max(topic.write_queue_nums, 1):
        raise InvalidParameter(
            f"topic {topic.name} has {topic.write_queue_nums} queues to write to, and a "
            f"message is for queue {queue_id}"
        )


def _check_born_time(time_ms: int) -> None:
    if not 0 <= time_ms < 2**63:
        raise InvalidParameter(f"the born time {time_ms} is not a time in ms since 1970")


def _check_sink(sink_id: str, batch_id: int, owner: str = "") -> None:
    if not 0 < len(sink_id) <= SINK_ID_LENGTH_MAX:
        raise InvalidParameter(f"a sink's id has 1 to {SINK_ID_LENGTH_MAX} characters")
    if len(owner) > SINK_ID_LENGTH_MAX:
        raise InvalidParameter(f"a sink's owner has at most {SINK_ID_LENGTH_MAX} characters")
    if batch_id < 0:
        raise InvalidParameter(f"the batch id is {batch_id}; it starts at 0")
