"""The plain pulls at the front of a pass, served by one call, if the C module was compiled.

``take_pulls`` is compiled (``_pulls.c``). It serves a pull if a pull with the same fields was
allowed before on this connection, and topics, groups, consumers and settings have not changed
since; if it wants all messages of its queue, or those that match an SQL92 expression; and if its
messages are sound, and in the newest files or in one older file of the queue and one of the log.
Python code locates the older files when a pull needs them. A pull at the end of its queue is held
here until a message arrives. HotPass serves all other pulls, and the first of each kind; it is the
oracle of the responses.
"""

from collections.abc import Callable
from mmap import mmap
from typing import TypeAlias

from rockhopper.broker.hot.hot_codec import PullHeader, decode_pull, json_frame, pieces, templates
from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.processors.pulls import PULL_CODES
from rockhopper.broker.kernel.pull.long_polling import ParkedPull
from rockhopper.broker.kernel.pull.puller import Pull, PullOutcome
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig
from rockhopper.broker.observing.stats import GroupTraffic, QueueReads
from rockhopper.broker.server.loop.fair_scheduler import PASS_BYTES_MAX
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import encode_response, refusal_response
from rockhopper.broker.server.remoting.permissions import check_subscriber
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.log.selecting import Test
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.store.reading.get_result import GetResult
from rockhopper.broker.users.access import AccessRules, Resource
from rockhopper.broker.users.errors import Refusal
from rockhopper.broker.users.peer import Peer, Principal
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.frame import Frame

Readable: TypeAlias = tuple[
    ConsumeQueue, GroupTraffic, QueueReads, str, str, list[object], Test | None
]
"""What pulls of one kind read: the queue; the counters of group and queue; topic and group; the
place that is not in the newest files: the mapping of units and its start, the mapping of the log
and its [start, end), any of which may have been closed since; and the test that selects messages by
their properties."""

Taken: TypeAlias = tuple[
    int,
    bytes | None,
    list[tuple[Readable, int, int, int, int, int]],
    list[tuple[str, str, int, int]],
    bytes | None,
    Readable | None,
    int,
    list[tuple[int, Readable, int, int]],
]
"""The result of serving some pulls: how many; their responses; the numbers to count for each queue,
that is pulls, messages, bytes, the next offset, and how many messages were tested by their
properties; the commits that came with them, as topic, group, queue and offset; the key of the first
pull of an unknown kind; the entry and offset of the first pull whose messages are in files that
were not located yet; and the pulls that wait for the next message of their queue: frame number,
entry, offset and wait in ms."""

_pulls = import_compiled("rockhopper.broker.hot._pulls")
take_pulls: Callable[..., Taken] | None = None if _pulls is None else _pulls.take_pulls

# A response to a pull has no fields that depend on the broker.
_PULLED = templates("", b"", trace_on=False).pulled
_MASTER = '"suggestWhichBrokerId":"0"'
_KEY = "readable"
# For one connection; a client has one for each queue that it pulls.
KINDS_MAX = 4096


class PlainReply:
    """Replies to a plain pull of anybody."""

    __slots__ = ("_connection", "_opaque")

    def __init__(self, connection: RemotingConnection, opaque: int) -> None:
        self._connection = connection
        self._opaque = opaque

    def answer(self, outcome: PullOutcome, result: GetResult) -> None:
        """See PullReply."""
        self._connection.write_soon(pull_answer(outcome, result, self._opaque))

    def refuse(self, error: Refusal) -> None:
        """See PullReply."""
        command = Command(code=RequestCode.PULL_MESSAGE, opaque=self._opaque)
        self._connection.write_soon((encode_response(command, refusal_response(error)),))

    def check_access(self) -> None:
        """See PullReply."""


class SubscriberReply(PlainReply):
    """Replies to a plain pull of a user, who may lose the permission to read."""

    __slots__ = ("_access", "_principal", "_resources")

    def __init__(
        self,
        connection: RemotingConnection,
        opaque: int,
        access: AccessRules,
        principal: Principal,
        resources: tuple[Resource, ...],
    ) -> None:
        super().__init__(connection, opaque)
        self._access = access
        self._principal = principal
        self._resources = resources

    def check_access(self) -> None:
        """See PullReply."""
        check_subscriber(self._access, self._principal, self._resources)


def pull_of(
    connection: RemotingConnection, request: PullHeader, reply: PlainReply | None = None
) -> Pull:
    """Return the pull for a request header.

    *reply* answers it; without one, it is answered with no further check of access.
    """
    fields = request.extFields
    return Pull(
        connection,
        False,
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
        reply or PlainReply(connection, request.opaque),
    )


def pull_answer(outcome: PullOutcome, result: GetResult, opaque: int) -> tuple[bytes, bytes]:
    """Return the two parts of the response frame for a pull."""
    values = (
        PULL_CODES[outcome],
        result.next_offset,
        result.min_offset,
        result.max_offset,
        opaque,
        result.status.value,
    )
    template = _PULLED
    if result.suggested_broker_id:
        suggestion = f'"suggestWhichBrokerId":"{result.suggested_broker_id}"'
        template = template.replace(_MASTER, suggestion)
    return json_frame(template, values, len(result.body)), result.body


class _ParkedPull(ParkedPull):
    """A plain pull that waits at the end of its queue."""

    __slots__ = ("_connection", "_frame", "_pulls")

    def __init__(
        self,
        pulls: "PlainPulls",
        connection: RemotingConnection,
        frame: Frame,
        tail: QueueTail,
        offset: int,
    ) -> None:
        super().__init__(connection, tail, offset)
        self._pulls = pulls
        self._connection = connection
        self._frame = frame

    def rerun(self) -> None:
        self._pulls.answer_now(self._connection, self._frame[1])

    def arrived(self) -> None:
        self._pulls.answer_soon(self._connection, self._frame)


class PlainPulls(KernelListener, CatalogListener):
    """The pulls that are known to be allowed, and the responses to them."""

    def __init__(self, kernel: Kernel) -> None:
        self._puller = kernel.puller
        self._store = kernel.store
        self._stats = kernel.stats
        self._times = kernel.request_times
        self._topics = kernel.tables.topics
        self._offsets = kernel.tables.offsets
        self._settings = kernel.config.pull
        self._long_polling = kernel.long_polling
        # Held pulls whose messages have arrived.
        self._woken: dict[RemotingConnection, list[Frame]] = {}
        code, *others, remark, end = pieces(_PULLED)
        found = b"%d" % ResponseCode.SUCCESS
        self._pieces = (code + found + others[0], *others[1:], remark + b"FOUND" + end)
        # Counts the changes after which every permission must be checked again.
        self._epoch = 0
        kernel.tables.topics.listeners.append(self)
        kernel.listeners.append(self)

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Check every permission again."""
        del name, topic
        self._epoch += 1

    def group_changed(self, name: str) -> None:
        """Check every permission again."""
        del name
        self._epoch += 1

    def members_changed(self) -> None:
        """Check every permission again."""
        self._epoch += 1

    def serve(
        self, reply_batch: ReplyBatch, frames: list[Frame], first: int, *, may_park: bool = True
    ) -> tuple[int, bytes | None]:
        """Serve the pulls from frame *first* on that compiled code can serve.

        Returns how many, and the key for ``allow`` of the next one, if it is a pull of a kind that
        was not served yet. Without *may_park*, pulls that would have to wait are not served.
        """
        store = self._store
        log = store.log.newest()
        needs_looks = self._offsets.has_resets or self._topics.mappings
        if take_pulls is None or log is None or needs_looks:
            return 0, None
        may_park = may_park and self._long_polling.has_room(
            reply_batch.connection, len(frames) - first
        )
        at, placed_at = first, -1
        while True:
            count, key, misplaced, offset = self._take(reply_batch, frames, at, log, may_park)
            at += count
            # If it could not be served at its place either, Python must serve it.
            if misplaced is None or placed_at == at or not self._place(misplaced, offset):
                return at - first, key
            placed_at = at

    def _take(
        self,
        reply_batch: ReplyBatch,
        frames: list[Frame],
        first: int,
        log: tuple[mmap, int, int],
        may_park: bool,
    ) -> tuple[int, bytes | None, Readable | None, int]:
        assert take_pulls is not None
        store = self._store
        limits = store.reading.reader.limits
        store.reading.reader.stage.begin_between()
        try:
            taken = take_pulls(
                frames,
                first,
                self._readable(reply_batch.connection),
                self._pieces,
                (
                    limits.count_in_memory,
                    limits.size_bytes_in_memory,
                    limits.memory_bytes,
                    limits.scan_count,
                ),
                PASS_BYTES_MAX - reply_batch.size_bytes,
                *log,
                store.reading.reader.tail_start,
                may_park,
            )
        finally:
            store.reading.reader.stage.finish_read()
        count, answers, counted, commits, key, misplaced, offset, parked = taken
        for commit in commits:
            self._offsets.commit(*commit)
        reply_batch.count(RequestCode.PULL_MESSAGE, count - len(parked))
        for (_, traffic, reads, *_), pulls, messages, size_bytes, next_offset, tested in counted:
            store.reading.reader.stage.tested_count += tested
            self._stats.get_found += pulls
            traffic.calls += pulls
            traffic.messages += messages
            traffic.bytes += size_bytes
            reads.calls += pulls
            reads.come_to(next_offset)
        if answers is not None:
            reply_batch.answer(answers)
        for at, readable, pull_offset, suspend_ms in parked:
            self._park(reply_batch.connection, frames[at], readable, pull_offset, suspend_ms)
        return count, key, misplaced, offset

    def _park(
        self,
        connection: RemotingConnection,
        frame: Frame,
        readable: Readable,
        offset: int,
        suspend_ms: int,
    ) -> None:
        queue = readable[0]
        self._stats.get_missed += 1
        tail = self._store.staging.tail(queue.topic, queue.queue_id)
        parked = _ParkedPull(self, connection, frame, tail, offset)
        wait_ms = suspend_ms if self._settings.long_polling else self._settings.short_polling_ms
        self._long_polling.park(parked, wait_ms / 1000)

    def answer_soon(self, connection: RemotingConnection, frame: Frame) -> None:
        """Respond to a pull that has waited, together with others."""
        if not self._woken:
            self._long_polling.loop.call_soon(self._serve_woken)
        self._woken.setdefault(connection, []).append(frame)

    def _serve_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for connection, frames in woken.items():
            if connection.closed:
                continue
            times = self._times
            reply_batch = ReplyBatch(
                self._store, self._stats, connection, times, times.now_s(), has_waited=True
            )
            at = 0
            while at < len(frames):
                at += self.serve(reply_batch, frames, at, may_park=False)[0]
                if reply_batch.size_bytes > PASS_BYTES_MAX:
                    reply_batch.flush()
                elif at < len(frames):
                    self.answer_now(connection, frames[at][1])
                    at += 1
            reply_batch.flush()

    def answer_now(self, connection: RemotingConnection, header: bytes) -> None:
        """Respond to a pull that has waited."""
        self._puller.answer_now(pull_of(connection, decode_pull(header)))

    def _place(self, readable: Readable, offset: int) -> bool:
        """Locate the messages of a queue from *offset* on; return False if that is not possible."""
        queue, place = readable[0], readable[5]
        try:
            units = queue.find_mapping(offset)
            records = None if units is None else self._store.log.find_mapping(units[2])
        except (OSError, StoreError):
            return False
        if units is None or records is None:
            return False
        place[:] = (*units[:2], *records)
        return True

    def allow(self, key: bytes, pull: Pull) -> None:
        """Remember that *pull* may read its queue, unless that must be checked each time.

        Nothing is remembered for a queue from which the group has received no message yet.
        """
        plain = self._puller.plain_read(pull)
        if plain is None:
            return
        queue, sql = plain
        traffic = self._stats.get_pull_traffic(pull.topic, pull.group)
        reads = traffic.queues.get(pull.queue_id)
        if reads is not None:
            test = None if sql is None else self._store.reading.reader.stage.test_of(sql)
            if sql is not None and test is None:
                return
            readable = self._readable(pull.connection)
            if len(readable) >= KINDS_MAX:
                readable.clear()
            readable[key] = queue, traffic, reads, pull.topic, pull.group, [], test

    def _readable(self, connection: Peer) -> dict[bytes, Readable]:
        known = connection.attributes.get(_KEY)
        if isinstance(known, _ReadableEntries) and known.epoch == self._epoch:
            return known.readable
        known = connection.attributes[_KEY] = _ReadableEntries(self._epoch)
        return known.readable


class _ReadableEntries:
    """The entries that one connection may read, until something changes."""

    __slots__ = ("epoch", "readable")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.readable: dict[bytes, Readable] = {}
