"""The hot pass: serves all frames of one read of a broker connection, and responds with one write.

Three requests make up nearly all traffic: a plain message (310), a batch (320) and a pull (11),
with JSON headers that name the code first, as known clients write them. Each is decoded in one step
into a typed struct (hot_codec.py) and served here without a task, a future or a coroutine. Every
other request (another serialisation, an unknown topic, a delayed message, a missing field …) takes
the general path through the dispatcher, which defines the right response.

The sends of a pass are staged together. One system call writes them when the pass ends, or when
another request must be served in between; only then are they acknowledged.

A pass that takes long, or has long responses, ends early: its other frames are served in a later
round.
"""

import time
from collections.abc import Callable, Collection
from functools import partial

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.hot.hot_codec import (
    BATCH_PREFIX,
    COMMIT_PREFIX,
    PULL_PREFIX,
    SEND_PREFIX,
    SEND_STARTS,
    SIGNED,
    UNDECODABLE,
    SendFields,
    decode_batch,
    decode_other_send,
    decode_pull,
    decode_send,
    encode_other_frame,
    json_frame,
    templates,
)
from rockhopper.broker.hot.plain_commits import PlainCommits
from rockhopper.broker.hot.plain_pulls import PlainPulls, SubscriberReply, pull_answer, pull_of
from rockhopper.broker.hot.plain_sends import common, count_up, take_sends, ways_to_wait
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.processors.pulls import PULL_CODES
from rockhopper.broker.kernel.pull.puller import PullOutcome
from rockhopper.broker.kernel.send.send_request import waits_for_disk
from rockhopper.broker.kernel.send.sender import INNER_BATCH_FLAGS, broker_properties
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.server.loop.fair_scheduler import PASS_BYTES_MAX, PASS_S
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.general_pass import GeneralPass
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.log.fast_encoding import message_ids
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.broker.users.errors import Refusal
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RequestCode,
    SerializeType,
)
from rockhopper.protocol.command import decode_header
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.names import NOT_SENDABLE_TOPICS
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT_SIZE_BYTES
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_MASK

SPECIAL_FLAGS = SYS_FLAG_TRANSACTION_MASK | INNER_BATCH_FLAGS
# In the names of all properties that delay a message; a batch with one is rejected.
_DELAYING_WORDS = ("DELAY", "DELIVER")
# The codes for request statistics; a run of sends counts under the code of its first one.
_SEND, _BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
EVERYBODY = Principal("")
PRINCIPALS_MAX = 1024


class HotPass(CatalogListener):
    """The frame handler of the broker's port."""

    def __init__(
        self,
        kernel: Kernel,
        features: Collection[FeaturePart],
        dispatcher: Dispatcher,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        config, stats, store_host = kernel.config, kernel.stats, kernel.store_host
        self._live = config.live
        self._live_store = config.store.live
        self._clock = clock
        self._store = kernel.store
        self._topics = kernel.tables.topics
        self._pull = kernel.puller.pull
        self._dispatcher = dispatcher
        self._access = dispatcher.access
        self._gate = dispatcher.gate
        self._general_pass = GeneralPass(dispatcher)
        self._stats = stats
        self._times = kernel.request_times
        # Topics that accept plain messages: the tails of their queues, and their counter. With
        # permissions they are those of the principal of this pass, else those of everybody.
        self._sendable: dict[str, tuple[list[QueueTail], Traffic]] = {}
        self._sendable_of = {EVERYBODY: self._sendable}
        self._principal = EVERYBODY
        self._body_bytes_max = self._live_store.message_size_max_bytes
        self._suffix = broker_properties(config)
        self._templates = templates(config.region_id, store_host, trace_on=config.trace_on)
        self._kernel, self._features = kernel, features
        self._common = common(
            self._templates,
            store_host,
            self._suffix,
            self._body_bytes_max,
            ways_to_wait(kernel, features),
        )
        # Unpacked, because each message uses them.
        _, self._id_host, self._sent, self._batch_sent, self._pulled = self._templates
        self._plain_pulls = PlainPulls(kernel)
        self._plain_commits = PlainCommits(kernel)
        fast_paths = (part.fast for part in features)
        self._fast_paths = tuple(path for path in fast_paths if path is not None)
        prefixes = (path.prefix for path in self._fast_paths)
        self._other_prefixes = (COMMIT_PREFIX, *prefixes)
        # Whether the last staged message is the first of its queue since the start.
        self._opens_queue = False
        kernel.tables.topics.listeners.append(self)

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Forget which topics accept plain messages."""
        del name, topic
        for sendable in self._sendable_of.values():
            sendable.clear()
        self._body_bytes_max = self._live_store.message_size_max_bytes
        self._common = self._common._replace(
            body_size_bytes_max=self._body_bytes_max,
            waiting=ways_to_wait(self._kernel, self._features),
        )

    def serve_frames(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        """Serve *frames* in order; return how many were served."""
        if not self._access.is_open:
            self._serve_in_name_of(connection.principal)
            if any(SIGNED in header for _, header, _ in frames):
                return self._general_pass.serve_frames(connection, frames)
        return self._serve(connection, frames)

    def _serve(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        began_s = self._clock()
        ends_at_s = began_s + PASS_S
        reply_batch = ReplyBatch(
            self._store,
            self._stats,
            connection,
            self._times,
            began_s,
            gate=self._gate,
        )
        taken = 0
        while taken < len(frames):
            serialize_type, header, body = frames[taken]
            if serialize_type == SerializeType.JSON and header.startswith(PULL_PREFIX):
                count, key = self._take_pulls(reply_batch, frames, taken)
                taken += count or 1
                served = count > 0 or self._serve_pull(reply_batch, header, key)
            elif (count := self._take_sends(reply_batch, frames, taken)) or (
                count := self._take_others(reply_batch, frames, taken)
            ):
                taken += count
                served = True
            else:
                taken += 1
                served = self._serve_one(reply_batch, serialize_type, header, body)
                if self._opens_queue:
                    # At once: making its files takes long, and the pass checks the clock.
                    self._opens_queue = False
                    reply_batch.settle()
            if not served and not self._general(reply_batch, serialize_type, header, body):
                return len(frames)
            if reply_batch.size_bytes > PASS_BYTES_MAX or self._clock() >= ends_at_s:
                break
        reply_batch.flush()
        return taken

    def _serve_in_name_of(self, principal: Principal) -> None:
        self._principal = principal
        if principal not in self._sendable_of and len(self._sendable_of) > PRINCIPALS_MAX:
            self._sendable_of.clear()
        self._sendable = self._sendable_of.setdefault(principal, {})

    def _may(self, action: Action, kind: ResourceKind, name: str) -> bool:
        return self._access.may(self._principal, action, Resource(kind, name))

    def _general(
        self, reply_batch: ReplyBatch, serialize_type: int, header: bytes, body: bytes
    ) -> bool:
        """Serve any request by the general path; return False if it closes the connection."""
        reply_batch.settle()
        connection = reply_batch.connection
        try:
            command = decode_header(serialize_type, header, body)
        except MalformedHeaderError as error:
            reply_batch.flush()
            connection.fail(error)
            return False
        if command.is_response:
            connection.response_received(command)
        elif self._dispatcher.promises_state(command.code):
            reply_batch.promise(self._dispatcher.dispatch(connection, command))
        else:
            reply_batch.answer(self._dispatcher.dispatch(connection, command))
        return True

    def _take_sends(self, reply_batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Serve the plain sends from frame *first* on that compiled code can serve."""
        serialize_type, header, _ = frames[first]
        starts = SEND_STARTS.get(serialize_type)
        if starts is None or not header.startswith(starts) or not reply_batch.can_stage():
            return 0
        born_host, place = reply_batch.connection.addresses.born_host, self._store.staging.place()
        taken = take_sends(frames, first, self._sendable, self._common, born_host, *place)
        if isinstance(taken, str) and self._admit(taken) is not None:
            taken = take_sends(frames, first, self._sendable, self._common, born_host, *place)
        if taken is None or isinstance(taken, str):
            return 0
        count, records, runs, packed_keys, counted, owed, halves = taken
        self._store.staging.stage_encoded(records, runs, packed_keys)
        count_up(counted)
        reply_batch.count_sends(_BATCH if header.startswith(BATCH_PREFIX) else _SEND, count)
        for answers, log_offset, waits in owed:
            reply_batch.sent(answers, log_offset, waits=waits)
        reply_batch.staged += count
        if halves:
            reply_batch.when_written(partial(self._report_opened, halves))
        return count

    def _report_opened(self, halves: list[tuple[int, int, str]], end: int) -> None:
        """Report the half messages before *end*, as far as the log is written: most or all."""
        written = [half for half in halves if half[1] < end]
        for part in self._features:
            if part.halves_opened is not None:
                part.halves_opened(written)

    def _take_others(self, reply_batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Serve the plain requests of one other kind from frame *first* on."""
        header = frames[first][1]
        if not header.startswith(self._other_prefixes) or not self._access.is_open:
            return 0
        # They may refer to messages staged before them.
        reply_batch.settle()
        if header.startswith(COMMIT_PREFIX):
            count, answers = self._plain_commits.serve(reply_batch.connection, frames, first)
            reply_batch.count(RequestCode.UPDATE_CONSUMER_OFFSET, count)
            if answers:
                reply_batch.promise(answers)
            return count
        path = next(path for path in self._fast_paths if header.startswith(path.prefix))
        count = path.serve(reply_batch, frames, first)
        reply_batch.count(path.code, count)
        return count

    def _serve_one(
        self, reply_batch: ReplyBatch, serialize_type: int, header: bytes, body: bytes
    ) -> bool:
        if serialize_type != SerializeType.JSON:
            return self._send_other(reply_batch, serialize_type, header, body)
        if header.startswith(SEND_PREFIX):
            return self._send(reply_batch, header, body)
        return header.startswith(BATCH_PREFIX) and self._send_batch(reply_batch, header, body)

    def _send(self, reply_batch: ReplyBatch, header: bytes, body: bytes) -> bool:
        try:
            request = decode_send(header)
        except UNDECODABLE:
            return False
        if request.flag & FLAG_RESPONSE:
            return False
        placed = self._stage(reply_batch, request.extFields, body)
        if placed is None:
            return False
        log_offset, queue_id, queue_offset, unique_key, waits = placed
        answer = b""
        if not request.flag & FLAG_ONEWAY:
            values = (log_offset, queue_id, queue_offset, unique_key, request.opaque)
            answer = json_frame(self._sent, values)
        reply_batch.sent(answer, log_offset, waits=waits)
        reply_batch.count_sends(_SEND)
        return True

    def _send_other(
        self, reply_batch: ReplyBatch, serialize_type: int, header: bytes, body: bytes
    ) -> bool:
        """Serve a plain send with a binary or msgpack header."""
        decoded = decode_other_send(serialize_type, header)
        if decoded is None:
            return False
        fields, opaque, is_oneway = decoded
        placed = self._stage(reply_batch, fields, body)
        if placed is None:
            return False
        log_offset, queue_id, queue_offset, unique_key, waits = placed
        answer = b""
        if not is_oneway:
            answer = encode_other_frame(
                self._templates,
                serialize_type,
                log_offset,
                queue_id,
                queue_offset,
                unique_key,
                opaque,
            )
        reply_batch.sent(answer, log_offset, waits=waits)
        reply_batch.count_sends(_SEND)
        return True

    def _stage(
        self, reply_batch: ReplyBatch, fields: SendFields, body: bytes
    ) -> tuple[int, int, int, str, bool] | None:
        """Stage a plain message: log offset, queue, queue offset, unique key, whether it waits."""
        target = self._target(fields)
        if target is None or fields.m or len(body) > self._body_bytes_max:
            return None
        if not reply_batch.can_stage():
            return None
        tail, traffic = target
        try:
            staged = self._store.staging.stage_plain(
                tail,
                body,
                fields.i,
                self._suffix,
                fields.h,
                fields.f,
                fields.g,
                reply_batch.connection.addresses.born_host,
                fields.j,
            )
        except StoreError:
            return None
        if staged is None:
            return None
        traffic.messages += 1
        traffic.calls += 1
        traffic.bytes += staged[3]
        return staged[0], tail.queue_id, tail.next_offset - 1, staged[1], staged[2]

    def _target(self, fields: SendFields) -> tuple[QueueTail, Traffic] | None:
        """Return the queue of a plain message, or None if the general path must decide."""
        sendable = self._sendable.get(fields.b)
        if sendable is None:
            sendable = self._admit(fields.b)
            if sendable is None:
                return None
        tails, traffic = sendable
        if not 0 <= fields.e < len(tails) or fields.f & SPECIAL_FLAGS or fields.rh:
            return None
        tail = tails[fields.e]
        self._opens_queue = tail.consume_queue is None
        return tail, traffic

    def _admit(self, name: str) -> tuple[list[QueueTail], Traffic] | None:
        topic = self._topics.get(name)
        if (
            topic is None
            or not topic.is_writable
            or topic.attributes
            or name in self._topics.mappings
            or name.startswith("%")
            or name in NOT_SENDABLE_TOPICS
            or self._topics.send_error(name) is not None
            or not self._live.is_writable
            or self._live.accept_send_from_ms > self._store.staging.read_clock()
            or not self._may(Action.PUB, ResourceKind.TOPIC, name)
        ):
            return None
        queue_nums = max(topic.write_queue_nums, topic.read_queue_nums)
        if queue_nums > 1024:
            return None
        tails = [self._store.staging.tail(name, queue_id) for queue_id in range(queue_nums)]
        sendable = (tails, self._stats.get_send_traffic(name))
        self._sendable[name] = sendable
        return sendable

    def _send_batch(self, reply_batch: ReplyBatch, header: bytes, body: bytes) -> bool:
        try:
            request = decode_batch(header)
        except UNDECODABLE:
            return False
        fields = request.extFields
        target = self._target(fields)
        if target is None or request.flag & FLAG_RESPONSE or len(body) > self._body_bytes_max:
            return False
        if any(word in fields.i for word in _DELAYING_WORDS):
            return False
        if not reply_batch.can_stage():
            return False
        tail, traffic = target
        first_offset = tail.next_offset
        try:
            placed = self._store.staging.stage_batch(
                tail, body, fields.f, fields.g, reply_batch.connection.addresses.born_host
            )
        except StoreError:
            return False
        if placed is None:
            return False
        log_offset, units = placed
        count = len(units) // CONSUME_QUEUE_UNIT_SIZE_BYTES
        traffic.messages += count
        traffic.calls += 1
        traffic.bytes += self._store.log.staged_offset - log_offset
        answer = b""
        if not request.flag & FLAG_ONEWAY:
            ids = message_ids(self._id_host, units)
            values = (ids, tail.queue_id, first_offset, request.opaque)
            answer = json_frame(self._batch_sent, values)
        reply_batch.sent(answer, log_offset, waits=waits_for_disk(fields.i))
        reply_batch.count_sends(_BATCH)
        return True

    def _take_pulls(
        self, reply_batch: ReplyBatch, frames: list[Frame], first: int
    ) -> tuple[int, bytes | None]:
        """Serve the plain pulls from frame *first* on that compiled code can serve."""
        if not self._access.is_open:
            return 0, None
        reply_batch.settle()
        return self._plain_pulls.serve(reply_batch, frames, first)

    def _serve_pull(self, reply_batch: ReplyBatch, header: bytes, key: bytes | None) -> bool:
        """Serve one pull; with *key*, compiled code may serve later pulls of its kind."""
        try:
            request = decode_pull(header)
        except UNDECODABLE:
            return False
        fields = request.extFields
        if request.flag & (FLAG_ONEWAY | FLAG_RESPONSE) or fields.rh:
            return False
        topic, group = fields.topic, fields.consumerGroup
        if topic in self._topics.mappings:
            return False
        reply = None
        if not self._access.is_open:
            asks = (self._principal, Action.SUB)
            resources = (Resource(ResourceKind.TOPIC, topic), Resource(ResourceKind.GROUP, group))
            if topic[:1] == "%" or not all(self._access.may(*asks, each) for each in resources):
                return False
            connection, opaque = reply_batch.connection, request.opaque
            reply = SubscriberReply(connection, opaque, self._access, self._principal, resources)
        reply_batch.settle()
        pull = pull_of(reply_batch.connection, request, reply)
        try:
            served = self._pull(pull)
        except Refusal:
            return False
        if served is not None:
            for part in pull_answer(*served, request.opaque):
                reply_batch.answer(part)
            self._times.record_requests(
                RequestCode.PULL_MESSAGE, PULL_CODES[served[0]], reply_batch.began_s
            )
        if key is not None and (served is None or served[0] is PullOutcome.FOUND):
            self._plain_pulls.allow(key, pull)
        return True
