"""The hot pass: all frames of one read of a broker connection, in one go, answered by one write.

Three requests make up nearly all traffic: a plain message (310), a batch (320) and a pull (11),
with JSON headers that name the code first, as every known client writes them.  They are decoded in
one step into a typed struct and served here without a task, a future or a coroutine.  Whatever is
not exactly that (another serialisation, an unknown topic, a delayed message, a missing field …)
goes the general way through the dispatcher, which is the reference for what the answer must be.

Sends of a pass are staged together, written by one system call when the pass ends or when
something else must be served in between, and only then answered.

The pass stops early when the peer does not read: see Connection.
"""

from collections.abc import Callable, Sequence
from struct import Struct as ByteStruct
from typing import Literal

import msgspec

from broker.config import BrokerConfig
from broker.dispatcher import Dispatcher, RequestError, error_response, store_error_response
from broker.pull_path import Pull, PullPath
from broker.send_path import PERM_WRITE
from broker.server import Connection
from broker.stats import BrokerStats, Traffic
from broker.store.errors import StoreError
from broker.store.get_result import GetResult
from broker.store.message_store import MessageStore
from broker.store.queue_tail import QueueTail
from broker.topics import TopicTable
from protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, MQ_VERSION, ResponseCode
from protocol.command import Command, decode_header, encode_command
from protocol.errors import MalformedHeaderError
from protocol.frame import Frame, FrameDecoder
from protocol.names import NOT_SENDABLE_TOPICS, group_error
from protocol.requests.fields import Int32, Int64
from protocol.sys_flags import SYS_FLAG_TRANSACTION_MASK

PASS_BYTES_MAX = 1 << 20
KNOWN_GROUPS_MAX = 10_000
_PREFIX_SIZE = 11
_SEND_PREFIX = b'{"code":310'
_BATCH_PREFIX = b'{"code":320'
_PULL_PREFIX = b'{"code":11,'
_LENGTHS = ByteStruct(">II")


class _SendFields(msgspec.Struct, gc=False):
    """The fields of SEND_MESSAGE_V2 that a plain send needs; RocketMQ's one-letter names."""

    a: str
    b: str
    e: int
    f: int
    g: int
    h: int
    i: str = ""
    j: int = 0
    m: bool = False


class _SendHeader(msgspec.Struct, gc=False):
    code: Literal[310]
    opaque: Int32
    extFields: _SendFields  # noqa: N815 - the wire's name
    flag: Int32 = 0


class _BatchHeader(msgspec.Struct, gc=False):
    code: Literal[320]
    opaque: Int32
    extFields: _SendFields  # noqa: N815
    flag: Int32 = 0


class _PullFields(msgspec.Struct, gc=False):
    consumerGroup: str  # noqa: N815
    topic: str
    queueId: int  # noqa: N815
    queueOffset: Int64  # noqa: N815
    maxMsgNums: Int32  # noqa: N815
    sysFlag: Int32  # noqa: N815
    commitOffset: Int64  # noqa: N815
    suspendTimeoutMillis: Int64  # noqa: N815
    subVersion: Int64  # noqa: N815
    subscription: str | None = None
    expressionType: str | None = None  # noqa: N815


class _PullHeader(msgspec.Struct, gc=False):
    code: Literal[11]
    opaque: Int32
    extFields: _PullFields  # noqa: N815
    flag: Int32 = 0


_decode_send = msgspec.json.Decoder(_SendHeader, strict=False).decode
_decode_batch = msgspec.json.Decoder(_BatchHeader, strict=False).decode
_decode_pull = msgspec.json.Decoder(_PullHeader, strict=False).decode


def _frame(header: bytes) -> bytes:
    size = len(header)
    return _LENGTHS.pack(size + 4, size) + header


class HotPass:
    """The frame handler of the broker's port."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        pull_path: PullPath,
        dispatcher: Dispatcher,
        stats: BrokerStats,
        store_host: bytes,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._pull = pull_path.pull
        self._dispatcher = dispatcher
        self._stats = stats
        # Topics that plain messages may go to: the tails of their queues, and their counter.
        self._sendable: dict[str, tuple[list[QueueTail], Traffic]] = {}
        self._groups: set[str] = set()
        self._body_bytes_max = config.store.message_size_max_bytes
        trace = "true" if config.trace_on else "false"
        region = config.region_id
        self._suffix = (
            f"MSG_REGION\x01{region}\x02TRACE_ON\x01{trace}\x02CLUSTER\x01{config.cluster_name}\x02"
        ).encode()
        tail = (
            f'"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
            f'"version":{int(MQ_VERSION)}}}'
        )
        answer = f'{{"code":0,"extFields":{{"MSG_REGION":{_quoted(region)},"TRACE_ON":"{trace}",'
        host = store_host.hex().upper()
        self._sent = (
            f'{answer}"msgId":"{host}%016X","queueId":"%d","queueOffset":"%d",'
            f'"transactionId":"%s"}},{tail}'
        ).replace("%%", "%")
        self._batch_sent = f'{answer}"msgId":"%s","queueId":"%d","queueOffset":"%d"}},{tail}'
        self._message_id = f"{host}%016X"
        self._pulled = (
            '{"code":%d,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%d",'
            f'"minOffset":"%d","maxOffset":"%d"}},{tail[:-1]},"remark":"%s"}}'
        )
        topics.listeners.append(self._topic_changed)

    def _topic_changed(self, *_: object) -> None:
        self._sendable.clear()

    def handle(self, connection: Connection, frames: Sequence[Frame]) -> int:
        """Serve *frames* in order; return how many were taken."""
        turn = _Turn(self, connection)
        taken = 0
        for serialize_type, header, body in frames:
            taken += 1
            served = False
            if serialize_type == 0:
                prefix = header[:_PREFIX_SIZE]
                if prefix == _SEND_PREFIX:
                    served = self._send(turn, header, body)
                elif prefix == _PULL_PREFIX:
                    served = self._serve_pull(turn, header)
                elif prefix == _BATCH_PREFIX:
                    served = self._send_batch(turn, header, body)
            if not served and not self._general(turn, serialize_type, header, body):
                return len(frames)
            if turn.size_bytes > PASS_BYTES_MAX:
                turn.end()
                if connection.writing_paused:
                    return taken
        turn.end()
        return taken

    def _general(self, turn: "_Turn", serialize_type: int, header: bytes, body: bytes) -> bool:
        """Serve any request the general way; False when the connection is closed for it."""
        turn.settle()
        connection = turn.connection
        try:
            command = decode_header(serialize_type, header, body)
        except MalformedHeaderError as error:
            turn.end()
            connection.fail(error)
            return False
        if command.is_response:
            connection.response_received(command)
        else:
            turn.answer(self._dispatcher.dispatch(connection, command))
        return True

    # -- sends ---------------------------------------------------------------------------------

    def _send(self, turn: "_Turn", header: bytes, body: bytes) -> bool:
        try:
            request = _decode_send(header)
        except (msgspec.DecodeError, RecursionError):
            return False
        fields = request.extFields
        target = self._target(fields)
        if target is None or fields.m or len(body) > self._body_bytes_max:
            return False
        if not turn.can_stage():
            return False
        tail, traffic = target
        try:
            staged = self._store.stage_plain(
                tail,
                body,
                fields.i,
                self._suffix,
                fields.h,
                fields.f,
                fields.g,
                turn.connection.born_host,
                fields.j,
            )
        except StoreError:
            return False
        if staged is None:
            return False
        position, unique_key, waits = staged
        traffic.messages += 1
        traffic.calls += 1
        traffic.bytes += len(body)
        opaque = request.opaque
        if request.flag & FLAG_ONEWAY:
            turn.staged += 1
        else:
            turn.sent(
                self._sent % (position, tail.queue_id, tail.next_offset - 1, unique_key, opaque),
                opaque,
                waits=waits,
            )
        return True

    def _target(self, fields: _SendFields) -> tuple[QueueTail, Traffic] | None:
        """The queue that a plain message goes to, or None if that takes a closer look."""
        if fields.a not in self._groups:
            if group_error(fields.a) is not None:
                return None
            if len(self._groups) >= KNOWN_GROUPS_MAX:
                self._groups.clear()
            self._groups.add(fields.a)
        sendable = self._sendable.get(fields.b)
        if sendable is None:
            sendable = self._admit(fields.b)
            if sendable is None:
                return None
        tails, traffic = sendable
        if not 0 <= fields.e < len(tails) or fields.f & SYS_FLAG_TRANSACTION_MASK:
            return None
        return tails[fields.e], traffic

    def _admit(self, name: str) -> tuple[list[QueueTail], Traffic] | None:
        topic = self._topics.get(name)
        if (
            topic is None
            or not topic.perm & PERM_WRITE
            or topic.attributes
            or name.startswith("%")
            or name in NOT_SENDABLE_TOPICS
            or not self._config.broker_permission & PERM_WRITE
            or self._config.accept_send_from_ms > self._store.begin()
        ):
            return None
        queue_nums = max(topic.write_queue_nums, topic.read_queue_nums)
        if queue_nums > 1024:
            return None
        tails = [self._store.tail(name, queue_id) for queue_id in range(queue_nums)]
        sendable = (tails, self._stats.put(name))
        self._sendable[name] = sendable
        return sendable

    def _send_batch(self, turn: "_Turn", header: bytes, body: bytes) -> bool:
        try:
            request = _decode_batch(header)
        except (msgspec.DecodeError, RecursionError):
            return False
        fields = request.extFields
        target = self._target(fields)
        if target is None or len(body) > self._body_bytes_max or not turn.can_stage():
            return False
        tail, traffic = target
        first_offset = tail.next_offset
        try:
            positions = self._store.stage_batch(
                tail, body, fields.f, fields.g, turn.connection.born_host
            )
        except StoreError:
            return False
        if positions is None:
            return False
        count = len(positions)
        traffic.messages += count
        traffic.calls += 1
        traffic.bytes += len(body)
        opaque = request.opaque
        if request.flag & FLAG_ONEWAY:
            turn.staged += 1
        else:
            ids = ",".join([self._message_id % position for position in positions])
            turn.sent(
                self._batch_sent % (ids, tail.queue_id, first_offset, opaque),
                opaque,
                waits="WAIT\x01false" not in fields.i,
            )
        return True

    # -- pulls ---------------------------------------------------------------------------------

    def _serve_pull(self, turn: "_Turn", header: bytes) -> bool:
        try:
            request = _decode_pull(header)
        except (msgspec.DecodeError, RecursionError):
            return False
        if request.flag & (FLAG_ONEWAY | FLAG_RESPONSE):
            return False
        turn.settle()
        fields = request.extFields
        opaque = request.opaque
        connection = turn.connection

        def answer(code: int, result: GetResult) -> None:
            connection.write(self._pull_answer(code, result, opaque))

        try:
            served = self._pull(
                Pull(
                    connection,
                    11,
                    fields.consumerGroup,
                    fields.topic,
                    fields.queueId,
                    fields.queueOffset,
                    fields.maxMsgNums,
                    fields.sysFlag,
                    fields.commitOffset,
                    fields.suspendTimeoutMillis,
                    fields.subscription,
                    fields.expressionType,
                    fields.subVersion,
                    answer,
                )
            )
        except RequestError:
            return False
        if served is not None:
            turn.answer(self._pull_answer(*served, opaque))
        return True

    def _pull_answer(self, code: int, result: GetResult, opaque: int) -> bytes:
        header = (
            self._pulled
            % (
                code,
                result.next_offset,
                result.min_offset,
                result.max_offset,
                opaque,
                result.status.value,
            )
        ).encode()
        size = len(header)
        body = result.body
        return b"".join((_LENGTHS.pack(size + 4 + len(body), size), header, body))


class _Turn:
    """What one pass has answered, staged, and still owes an answer for."""

    __slots__ = ("_began", "_hot", "_sends", "answers", "connection", "size_bytes", "staged")

    def __init__(self, hot: HotPass, connection: Connection) -> None:
        self._hot = hot
        self._began = False
        # Answers to staged sends: (frame, opaque, whether it waits for the disk).
        self._sends: list[tuple[bytes, int, bool]] = []
        self.connection = connection
        self.answers: list[bytes] = []
        self.size_bytes = 0
        self.staged = 0

    def can_stage(self) -> bool:
        """Whether the store takes messages now; reads the clock once a pass."""
        if not self._began:
            store = self._hot._store
            if not store.is_writable:
                return False
            try:
                store.check_writable()
            except StoreError:
                return False
            store.begin()
            self._began = True
        return True

    def sent(self, header: str, opaque: int, *, waits: bool) -> None:
        """Owe the answer to a staged send until the pass is written."""
        self.staged += 1
        self._sends.append((_frame(header.encode()), opaque, waits))

    def answer(self, frame: bytes) -> None:
        """Send *frame* with the pass."""
        self.answers.append(frame)
        self.size_bytes += len(frame)

    def settle(self) -> None:
        """Write what is staged, so that whatever follows finds it stored, or refused."""
        if not self.staged:
            return
        store = self._hot._store
        sends, self._sends = self._sends, []
        self.staged = 0
        self._began = False
        try:
            end = store.commit()
        except StoreError as error:
            self._hot._stats.put_failed += len(sends)
            response = store_error_response(error)
            for _, opaque, _ in sends:
                self.answer(_error_frame(opaque, response.code, response.remark))
            return
        if not store.is_sync:
            for frame, _, _ in sends:
                self.answer(frame)
            return
        waiting = [frame for frame, _, waits in sends if waits]
        for frame, _, waits in sends:
            if not waits:
                self.answer(frame)
        if waiting:
            store.park(end, _release(self.connection, b"".join(waiting)))

    def end(self) -> None:
        """Settle and send everything."""
        self.settle()
        if self.answers:
            self.connection.write(b"".join(self.answers))
            self.answers = []
            self.size_bytes = 0


def _release(connection: Connection, frames: bytes) -> Callable[[StoreError | None], None]:
    def release(error: StoreError | None) -> None:
        connection.write(frames if error is None else _unconfirmed(frames, error))

    return release


def _unconfirmed(frames: bytes, error: StoreError) -> bytes:
    """The same answers with a code that says: stored, but the disk has not confirmed it."""
    response = error_response(error)
    failed = response is not None and response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    answers = []
    for serialize_type, header, _ in FrameDecoder().feed(frames):
        command = decode_header(serialize_type, header)
        command.code = (
            ResponseCode.SERVICE_NOT_AVAILABLE if failed else ResponseCode.FLUSH_DISK_TIMEOUT
        )
        command.remark = str(error)
        answers.append(encode_command(command))
    return b"".join(answers)


def _error_frame(opaque: int, code: int, remark: str | None) -> bytes:
    return encode_command(
        Command(code=code, opaque=opaque, flag=FLAG_RESPONSE, remark=remark, ext={})
    )


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
