"""The plain sends of a turn, from many connections, served by one compiled call.

``take_sends`` (``_sends.c``) makes records, consume queue units, index keys and responses from the
frames of all connections that have some, for as many plain sends as follow each other on each. The
general path (kernel/send/sender.py) is its oracle: it stores the same records, to the byte, and
serves anything unusual: an unknown topic, the first message of a queue, a delivery time, a msgpack
header, a missing field. Without the C module it serves all sends.

Where users are required, compiled code checks the signature of each send, too. It does so only for
users whom the general path has authenticated on the same connection, and whom it would not throttle
(``Signers``). Any other signature is left to the general path, which responds, counts failures, and
logs.

Example: in one turn of the loop, 100 connections have one send each. One call makes 100 records,
one write adds them to the log, and each connection gets its own response.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rockhopper.broker.hot.encoded_writes import EncodedWrites, Owed
from rockhopper.broker.hot.hot_codec import Templates, pieces, templates
from rockhopper.broker.hot.parts import HotFeature, HotKernel
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.gate import FAILURES
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.broker.users.access import AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.authentication import FailureAllowance
from rockhopper.broker.users.guard import Guard, guard_of
from rockhopper.broker.users.peer import USERS, Principal
from rockhopper.protocol.codes import FLAG_RESPONSE, MQ_VERSION, LanguageCode, RequestCode
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.headers.header_binary import encode_binary_header
from rockhopper.protocol.names import (
    NOT_SENDABLE_TOPICS,
    SCHEDULE_TOPIC,
    TRANSACTION_HALF_TOPIC,
)


class Sendable(dict[str, tuple[list[QueueTail], Traffic]]):
    """Topics that accept plain messages: the tails of their queues, and their counter."""

    __slots__ = ("principal",)

    def __init__(self, principal: Principal | None = None) -> None:
        super().__init__()
        self.principal = principal
        """Who may send to them; None: everybody, where no users are required."""


Signers: TypeAlias = dict[str, tuple[bytes, Sendable]]
"""By access key: the signing key (_signatures.h), and the topics that the user may send to."""

Front: TypeAlias = tuple[RemotingConnection, list[Frame], bytes, Sendable, Signers | None]
"""A connection, its frames, its host as records have it, and the topics that it may send to; if
its requests must be signed, those who may sign them, with topics of their own."""

Counted: TypeAlias = list[tuple[Traffic, int, int, int]]
"""The counter of a topic, and the numbers to add: messages, requests and bytes."""

_SEND, _BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
SENDS_PER_CALL_MAX = 384
"""The compiled call has room for the queues of so many messages; it takes about half a
millisecond."""
QUEUES_MAX = 1024
"""Topics with more queues take the general path."""
USER_TOPICS_MAX = 1024
"""The topics that are remembered as sendable, for each user of a connection."""
ADMISSIONS_PER_CALL_MAX = 3
"""How often a call is repeated because topics were admitted; each front names one at a time."""
_SIGNERS = "signers"
# Positions in a binary header: the opaque, the flag, the sizes after it, and the fields.
_OPAQUE_AT, _FLAG_AT, _SIZE_AT, _FIELDS_AT = 5, 9, 17, 21


class Taken(NamedTuple):
    """The result of serving some sends."""

    counts: list[int]
    """How many of each front that was reached."""
    is_cut: bool
    """Whether the last of these may have more plain sends."""
    sends: int
    batches: int
    unknown: list[tuple[Sendable, str]]
    """Topics that are not known to be sendable, of the sends that ended their fronts."""
    records: bytes
    runs: list[Run]
    packed_keys: bytes
    """The index keys of the records."""
    traffic: Counted
    owed: list[Owed]
    halves: list[tuple[int, int, str]] | None
    """Queue offset, log offset and producer group of half messages."""
    ids_used: int
    """How many messages had no key, and got one of the ids."""
    wants_ids: bool
    """Whether any message had no key."""


class DeferredSends(NamedTuple):
    """The common data of messages that wait elsewhere before they get to their topics.

    These are messages with a delay level, and half messages; not those with a delivery time.
    """

    tails: Mapping[tuple[str, int], QueueTail]
    delays_ms: tuple[int, ...]
    """The delays of the levels, from the first one on."""
    delay_topic: str
    half_topic: str | None
    """None if half messages are rejected, or are no feature's."""
    half_traffic: Traffic


class Common(NamedTuple):
    """The common data of all sends to a broker."""

    store_host: bytes
    suffix: bytes
    """The properties that the broker adds, as they are stored."""
    id_host: bytes
    body_size_bytes_max: int
    sent: tuple[bytes, ...]
    """The pieces of a JSON header between message id, queue, queue offset, key and opaque."""
    batch_sent: tuple[bytes, ...]
    """The same without a key."""
    binary: tuple[bytes, bytes, bytes]
    """A binary header: before the opaque, after it, and the first fields."""
    waiting: DeferredSends


def ways_to_wait(kernel: HotKernel, features: Iterable[HotFeature]) -> DeferredSends:
    """Return how messages wait, by the present settings."""
    takes_halves = not kernel.config.transactions.reject_transaction_message and any(
        part.halves_opened is not None for part in features
    )
    return DeferredSends(
        kernel.store.staging.tails,
        tuple(kernel.delay_levels.delays_ms),
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC if takes_halves else None,
        kernel.stats.get_send_traffic(TRANSACTION_HALF_TOPIC),
    )


def common(
    templates: Templates,
    store_host: bytes,
    suffix: bytes,
    body_size_bytes_max: int,
    waiting: DeferredSends,
) -> Common:
    """Return the data that ``take_sends`` needs; *templates* are the broker's."""
    binary = encode_binary_header(
        0, LanguageCode.JAVA, MQ_VERSION, 0, FLAG_RESPONSE, None, templates.ext
    )
    sent, batch_sent = pieces(templates.sent), pieces(templates.batch_sent)
    host = templates.id_host.encode()
    return Common(
        store_host,
        suffix,
        host,
        body_size_bytes_max,
        (sent[0].removesuffix(host), *sent[1:]),
        batch_sent,
        (binary[:_OPAQUE_AT], binary[_FLAG_AT:_SIZE_AT], binary[_FIELDS_AT:]),
        waiting,
    )


class _KnownSigners(NamedTuple):
    """The signers of a connection, until topics, users or rules change."""

    epoch: tuple[int, int]
    user_count: int
    """How many users the connection had."""
    signers: Signers


class PlainSends(CatalogListener):
    """Serves plain sends, and knows which topics accept them, and from whom."""

    def __init__(
        self, kernel: HotKernel, features: Collection[HotFeature], access: AccessRules
    ) -> None:
        config = kernel.config
        self._kernel, self._features = kernel, features
        self._guard = guard_of(access)
        self._knows_rules = access.is_open or self._guard is not None
        # Counts the changes of topics.
        self._epoch = 0
        self._topics = kernel.tables.topics
        self._staging = kernel.store.staging
        # Not the clock of the pass, whose time the records of this call have already.
        self._now_ms = kernel.clock.steady_ms
        self._writes = EncodedWrites(kernel)
        self._times = kernel.request_times
        self._common = common(
            templates(config.region_id, kernel.store_host, trace_on=config.trace_on),
            kernel.store_host,
            config.added_properties,
            config.store.live.message_size_max_bytes,
            ways_to_wait(kernel, features),
        )
        self._ids = kernel.unique_ids
        # Most clients send a key with each message.
        self._assigns_keys = False
        self._sendable = Sendable()
        self._topics.listeners.append(self)

    @property
    def is_compiled(self) -> bool:
        """Whether there is compiled code, for the rules of this broker."""
        return take_sends is not None and self._knows_rules

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Forget which topics accept plain messages."""
        del name, topic
        self._sendable.clear()
        self._epoch += 1
        self._common = self._common._replace(
            body_size_bytes_max=self._kernel.config.store.live.message_size_max_bytes,
            waiting=ways_to_wait(self._kernel, self._features),
        )

    def serve(
        self, connections: Sequence[RemotingConnection], frames: Sequence[list[Frame]]
    ) -> tuple[list[int], bool]:
        """Serve the plain sends at the front of the *frames* of each of *connections*.

        It ends after SENDS_PER_CALL_MAX, or a MiB of records. Returns how many of each connection
        that was reached, and whether the last of these may have more.
        """
        if take_sends is None or (place := self._writes.find_place()) is None:
            return [0] * len(connections), False
        began_s = self._times.now_s()
        fronts = self._make_fronts(connections, frames)
        ids, number = self._ids.reserve(SENDS_PER_CALL_MAX) if self._assigns_keys else ("", 0)
        id_start = ids.encode()
        for _ in range(ADMISSIONS_PER_CALL_MAX):
            # Nothing is done yet.
            taken = take_sends(fronts, SENDS_PER_CALL_MAX, self._common, id_start, number, *place)
            # The fields of Taken: to make one takes longer.
            counts, is_cut, sends, batches, unknown, records, runs, keys, traffic, owed = taken[:10]
            halves, ids_used, wants_ids = taken[10:]
            if not (unknown and self._admit_any(unknown)):
                break
        if self._assigns_keys:
            self._ids.give_back(number + ids_used)
        elif wants_ids:
            self._assigns_keys = True
        if records:
            assert count_up is not None
            count_up(traffic)
            served = {_SEND: sends, _BATCH: batches} if batches else {_SEND: sends}
            is_written = self._writes.write(records, runs, keys, owed, served, began_s)
            if halves is not None and is_written:
                self._report_opened(halves)
        return counts, is_cut

    def find_signer(self, connection: RemotingConnection, frame: Frame) -> Principal | None:
        """Return the user who has signed any request, if compiled code may serve this user."""
        if find_signer is None or self._guard is None:
            return None
        user = find_signer(frame, self._find_signers(self._guard, connection))
        return None if user is None else Principal(connection.principal.host, user)

    def _make_fronts(
        self, connections: Sequence[RemotingConnection], frames: Sequence[list[Frame]]
    ) -> list[Front]:
        sendable, guard = self._sendable, self._guard
        return [
            (
                connection,
                backlog,
                connection.addresses.born_host,
                sendable,
                None if guard is None else self._find_signers(guard, connection),
            )
            for connection, backlog in zip(connections, frames, strict=True)
        ]

    def _report_opened(self, halves: list[tuple[int, int, str]]) -> None:
        for part in self._features:
            if part.halves_opened is not None:
                part.halves_opened(halves)

    def _find_signers(self, guard: Guard, connection: RemotingConnection) -> Signers:
        """Return the users who have authenticated on *connection*, and are not throttled there."""
        attributes, epoch = connection.attributes, (self._epoch, guard.generation)
        users, failures = attributes.get(USERS), attributes.get(FAILURES)
        if not isinstance(users, set) or not isinstance(failures, FailureAllowance):
            return {}
        known = attributes.get(_SIGNERS)
        if (
            not isinstance(known, _KnownSigners)
            or known.epoch != epoch
            or known.user_count != len(users)
        ):
            signers = _make_signers(guard, connection.principal.host, users)
            known = attributes[_SIGNERS] = _KnownSigners(epoch, len(users), signers)
        if failures.is_untouched:
            return known.signers
        authenticator, host = guard.authenticator, connection.principal.host
        return {
            name: signer
            for name, signer in known.signers.items()
            if not authenticator.is_throttled(name, host, failures)
        }

    def _admit_any(self, unknown: Iterable[tuple[Sendable, str]]) -> bool:
        """Admit those topics that accept plain messages; return whether any does."""
        distinct = {(id(sendable), name): sendable for sendable, name in unknown}
        admitted = [
            self._admit(name)
            if sendable.principal is None
            else self._admit_for(sendable, sendable.principal, name)
            for (_, name), sendable in distinct.items()
        ]
        return any(admitted)

    def _admit_for(self, sendable: Sendable, principal: Principal, name: str) -> bool:
        assert self._guard is not None
        topic = Resource(ResourceKind.TOPIC, name)
        if not self._guard.may(principal, Action.PUB, topic):
            return False
        if name not in self._sendable and not self._admit(name):
            return False
        if len(sendable) >= USER_TOPICS_MAX:
            sendable.clear()
        sendable[name] = self._sendable[name]
        return True

    def _admit(self, name: str) -> bool:
        topic = self._topics.get(name)
        live = self._kernel.config.live
        if (
            topic is None
            or not topic.is_writable
            or topic.attributes
            or name in self._topics.mappings
            or name.startswith("%")
            or name in NOT_SENDABLE_TOPICS
            or self._topics.send_error(name) is not None
            or not live.is_writable
            or live.accept_send_from_ms > self._now_ms()
        ):
            return False
        queue_nums = max(topic.write_queue_nums, topic.read_queue_nums)
        if queue_nums > QUEUES_MAX:
            return False
        tails = [self._staging.tail(name, queue_id) for queue_id in range(queue_nums)]
        self._sendable[name] = tails, self._kernel.stats.get_send_traffic(name)
        return True


def _make_signers(guard: Guard, host: str, names: Iterable[str]) -> Signers:
    assert make_key is not None
    users = [guard.users.get(name) for name in names]
    return {
        user.name: (make_key(user.secret.encode()), Sendable(Principal(host, user.name)))
        for user in users
        if user is not None and user.is_enabled
    }


_sends = import_compiled("rockhopper.broker.hot._sends")
if _sends is not None:
    _sends.set_classes(Run, QueueTail, Traffic)
count_up: Callable[[Counted], None] | None = None if _sends is None else _sends.count_up
"""Add the numbers to the traffic counters."""
make_key: Callable[[bytes], bytes] | None = None if _sends is None else _sends.make_key
"""Make the signing key of a secret."""
find_signer: Callable[[Frame, Signers], str | None] | None = (
    None if _sends is None else _sends.find_signer
)
"""Return the one of the signers who has signed a request in JSON; None if Python must check it."""
take_sends: Callable[..., tuple[Any, ...]] | None = None if _sends is None else _sends.take_sends
"""Serve the plain sends of the fronts. Arguments: fronts, SENDS_PER_CALL_MAX or less, Common, what
``UniqueIds.reserve`` returned (empty without ids), and the place of the next record. Returns the
fields of Taken. No side effects: everything it did is in the result."""
