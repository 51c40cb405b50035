"""The plain pulls of a turn, from many connections, served by one call, if C was compiled.

``take_pulls`` is compiled (``_pulls.c``). It serves a pull if a pull with the same fields was
allowed before on this connection, and topics, groups, consumers and settings have not changed
since; if it wants all messages of its queue, or those that match an SQL92 expression; and if its
messages are sound, and in the newest files or in one older file of the queue and one of the log.
Python code allows the first pull of each kind, and locates the older files when a pull needs them.
A pull at the end of its queue is held here until a message arrives; that of a user is held by the
general path, which checks it again then. The general path (kernel/processors/pulls.py) serves all
other pulls; it is the oracle of the responses.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rockhopper.broker.hot.hot_codec import (
    UNDECODABLE,
    PullHeader,
    decode_pull,
    json_frame,
    pieces,
    templates,
)
from rockhopper.broker.hot.parts import HotKernel
from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.processors.pulls import PULL_CODES
from rockhopper.broker.kernel.pull.long_polling import ParkedPull
from rockhopper.broker.kernel.pull.puller import Pull, PullOutcome
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig
from rockhopper.broker.observing.stats import GroupTraffic, QueueReads
from rockhopper.broker.server.loop.fair_scheduler import PASS_BYTES_MAX
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import encode_response, refusal_response
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.log.selecting import Test
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.store.reading.get_result import GetResult
from rockhopper.broker.users.access import AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.errors import Refusal
from rockhopper.broker.users.guard import guard_of
from rockhopper.broker.users.peer import Peer, Principal
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, ResponseCode
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

Front: TypeAlias = tuple[list[Frame], int, dict[bytes, Readable], bool]
"""Frames of a connection, the number of the first one to serve, what the connection may read, and
whether its pulls may wait."""

Served: TypeAlias = tuple[
    int,
    bytes | None,
    bytes | None,
    Readable | None,
    int,
    list[tuple[int, Readable, int, int]],
]
"""The result of serving some pulls of a front: how many; their responses; the key of the first pull
of an unknown kind; the entry and offset of the first pull whose messages are in files that were not
located yet; and the pulls that wait for the next message of their queue: frame number, entry,
offset and wait in ms."""

Taken: TypeAlias = tuple[
    list[Served],
    list[tuple[Readable, int, int, int, int, int, int]],
    list[tuple[str, str, int, int]],
]
"""The results of the fronts that were reached; the numbers to count for each queue, that is pulls,
messages, bytes, the offsets after the last message and after the newest one, and how many messages
were tested by their properties; and the commits that came with the pulls, as topic, group, queue
and offset."""

_pulls = import_compiled("rockhopper.broker.hot._pulls")
take_pulls: Callable[..., Taken] | None = None if _pulls is None else _pulls.take_pulls

# A response to a pull has no fields that depend on the broker.
_PULLED = templates("", b"", trace_on=False).pulled
_MASTER = '"suggestWhichBrokerId":"0"'
_KEY = "readable"
PULLS_PER_CALL_MAX = 384
"""To hold so many takes two milliseconds."""
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


def pull_of(connection: RemotingConnection, request: PullHeader) -> Pull:
    """Return the pull for a request header."""
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
        PlainReply(connection, request.opaque),
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

    def __init__(self, kernel: HotKernel, access: AccessRules) -> None:
        self._guard = guard_of(access)
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

    def serve_signed(self, reply_batch: ReplyBatch, frame: Frame, principal: Principal) -> int:
        """Serve a pull that *principal* has signed, as ``serve``, if it does not have to wait.

        While it waits, its user or the rules may change, so the general path holds it.
        """
        return self.serve(reply_batch, [frame], 0, may_park=False, principal=principal)

    def serve(
        self,
        reply_batch: ReplyBatch,
        frames: list[Frame],
        first: int,
        *,
        may_park: bool = True,
        principal: Principal | None = None,
    ) -> int:
        """Serve the pulls from frame *first* on that compiled code can serve; return how many.

        Without *may_park*, pulls that would have to wait are not served. *principal* has signed
        them, where users are required.
        """
        if not self._may_serve():
            return 0
        connection = reply_batch.connection
        may_park = may_park and self._long_polling.has_room(connection, len(frames) - first)
        readable = self._readable(connection, principal)
        at, allowed_at, placed_at = first, -1, -1
        while True:
            front = frames, at, readable, may_park
            (served,) = self._take([front], PASS_BYTES_MAX - reply_batch.size_bytes)
            count, answers, key, misplaced, offset, parked = served
            reply_batch.count(RequestCode.PULL_MESSAGE, count - len(parked))
            if answers is not None:
                reply_batch.answer(answers)
            self._park_all(connection, frames, parked)
            at += count
            if key is not None and allowed_at != at:
                allowed_at = at
                if self._allow(connection, frames[at][1], key, readable, principal):
                    continue
            # If it could not be served at its place either, the general path must serve it.
            if misplaced is None or placed_at == at or not self._place(misplaced, offset):
                return at - first
            placed_at = at

    def serve_turn(self, connections: Sequence[RemotingConnection]) -> None:
        """Serve the pulls at the fronts of the backlogs of *connections* together.

        Those of a kind that is not known yet, or in files that were not located, are left for the
        pass of their connection, as are those beyond PULLS_PER_CALL_MAX or PASS_BYTES_MAX.
        """
        if not self._may_serve():
            return
        began_s, has_room = self._times.now_s(), self._long_polling.has_room
        fronts: list[Front] = []
        room = PULLS_PER_CALL_MAX
        for connection in connections:
            frames = connection.backlog
            room -= len(frames)
            if room < 0:
                break
            may_park = has_room(connection, len(frames))
            fronts.append((frames, 0, self._readable(connection, None), may_park))
        answered = 0
        for connection, (count, answers, *_, parked) in zip(
            connections, self._take(fronts, PASS_BYTES_MAX), strict=False
        ):
            if not count:
                continue
            frames, connection.backlog = connection.backlog, connection.backlog[count:]
            answered += count - len(parked)
            if answers is not None:
                connection.write(answers)
            self._park_all(connection, frames, parked)
        if answered:
            self._times.served({RequestCode.PULL_MESSAGE: answered}, began_s)

    def _may_serve(self) -> bool:
        needs_looks = self._offsets.has_resets or self._topics.mappings
        return not (take_pulls is None or needs_looks or self._store.log.newest() is None)

    def _take(self, fronts: list[Front], answers_size_max: int) -> list[Served]:
        store = self._store
        log, limits = store.log.newest(), store.reading.reader.limits
        assert take_pulls is not None
        assert log is not None
        store.reading.reader.stage.begin_between()
        try:
            served, counted, commits = take_pulls(
                fronts,
                self._pieces,
                (
                    limits.count_in_memory,
                    limits.size_bytes_in_memory,
                    limits.memory_bytes,
                    limits.scan_count,
                ),
                answers_size_max,
                *log,
                store.reading.reader.tail_start,
            )
        finally:
            store.reading.reader.stage.finish_read()
        for commit in commits:
            self._offsets.commit(*commit)
        for (_, traffic, reads, *_), pulls, messages, size_bytes, *offsets, tested in counted:
            store.reading.reader.stage.tested_count += tested
            self._stats.get_found += pulls
            traffic.calls += pulls
            traffic.messages += messages
            traffic.bytes += size_bytes
            reads.calls += pulls
            next_offset, furthest_offset = offsets
            reads.come_to(furthest_offset)
            reads.come_to(next_offset)
        return served

    def _park_all(
        self,
        connection: RemotingConnection,
        frames: list[Frame],
        parked: list[tuple[int, Readable, int, int]],
    ) -> None:
        for at, entry, offset, suspend_ms in parked:
            self._park(connection, frames[at], entry, offset, suspend_ms)

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
        staging, key = self._store.staging, (queue.topic, queue.queue_id)
        tail = staging.tails.get(key) or staging.tail(*key)
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
        began_s, times = self._times.now_s(), self._times
        connections = [connection for connection in woken if not connection.closed]
        fronts: list[Front] = [
            (woken[connection], 0, self._readable(connection, None), False)
            for connection in connections
        ]
        answered = 0
        served = self._take(fronts, PASS_BYTES_MAX) if self._may_serve() else []
        for connection, (count, answers, *_) in zip(connections, served, strict=False):
            answered += count
            del woken[connection][:count]
            if answers is not None:
                connection.write(answers)
        if answered:
            times.record_requests(
                RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, began_s, answered, has_waited=True
            )
        for connection in connections:
            if woken[connection]:
                self._serve_rest(connection, woken[connection])

    def _serve_rest(self, connection: RemotingConnection, frames: list[Frame]) -> None:
        """Respond to pulls that have waited, one connection alone."""
        times = self._times
        reply_batch = ReplyBatch(connection, times, times.now_s(), has_waited=True)
        at = 0
        while at < len(frames):
            at += self.serve(reply_batch, frames, at, may_park=False)
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

    def _allow(
        self,
        connection: RemotingConnection,
        header: bytes,
        key: bytes,
        readable: dict[bytes, Readable],
        principal: Principal | None,
    ) -> bool:
        """Remember whether a pull may read its queue without further checks, and return it.

        Nothing is remembered for a queue from which the group has received no message yet.
        """
        request = _decode_plain(header)
        if request is None:
            return False
        pull = pull_of(connection, request)
        if not self._may_read(principal, pull):
            return False
        plain = self._puller.plain_read(pull)
        if plain is None:
            return False
        queue, sql = plain
        traffic = self._stats.get_pull_traffic(pull.topic, pull.group)
        reads = traffic.queues.get(pull.queue_id)
        if reads is None:
            return False
        test = None if sql is None else self._store.reading.reader.stage.test_of(sql)
        if sql is not None and test is None:
            return False
        if len(readable) >= KINDS_MAX:
            readable.clear()
        readable[key] = queue, traffic, reads, pull.topic, pull.group, [], test
        return True

    def _may_read(self, principal: Principal | None, pull: Pull) -> bool:
        if principal is None:
            return True
        assert self._guard is not None
        resources = (ResourceKind.TOPIC, pull.topic), (ResourceKind.GROUP, pull.group)
        return all(
            self._guard.may(principal, Action.SUB, Resource(kind, name)) for kind, name in resources
        )

    def _readable(self, connection: Peer, principal: Principal | None) -> dict[bytes, Readable]:
        epoch = self._epoch, 0 if self._guard is None else self._guard.generation
        user = "" if principal is None else principal.user
        known = connection.attributes.get(_KEY)
        if not isinstance(known, _ReadableEntries) or known.epoch != epoch:
            known = connection.attributes[_KEY] = _ReadableEntries(epoch)
        return known.by_user.setdefault(user, {})


def _decode_plain(header: bytes) -> PullHeader | None:
    try:
        request = decode_pull(header)
    except UNDECODABLE:
        return None
    is_odd = request.flag & (FLAG_ONEWAY | FLAG_RESPONSE) or request.extFields.rh
    return None if is_odd else request


class _ReadableEntries:
    """The entries that the users of one connection may read, until something changes."""

    __slots__ = ("by_user", "epoch")

    def __init__(self, epoch: tuple[int, int]) -> None:
        self.epoch = epoch
        self.by_user: dict[str, dict[bytes, Readable]] = {}
        """Without users, those of all are of the user without a name."""
