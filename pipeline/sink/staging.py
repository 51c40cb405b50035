"""Exactly once: parts are staged at one broker, which publishes a batch whole and once.

All rows of a batch go to one broker, since that is as far as publishing is atomic: the one that
has published for this sink before, else one that the sink's id picks.  Sinks of other ids use other
brokers, so that a cluster is used evenly by many of them.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from client.errors import RequestRefusedError, RouteNotFoundError
from client.routing import TopicRoute
from pipeline.errors import PipelineError
from pipeline.remote import Remote, connect, result
from pipeline.retrying import is_passing
from pipeline.sink.encoding import Messages, encode_messages, pieces
from pipeline.sink.rules import SinkRules
from protocol.bodies.sinks import SinkPart, encode_sink_body
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command
from protocol.java_hash import java_string_hash
from protocol.requests import encode_fields
from protocol.requests.extensions import SinkBatchRequest, SinkStageRequest, SinkStatusRequest

# What a message takes in a request beside its body and its properties, at most or nearly so.
OVERHEAD_BYTES = 64
_FAULTS_OF_ROWS = frozenset(
    {
        int(ResponseCode.MESSAGE_ILLEGAL),
        int(ResponseCode.INVALID_PARAMETER),
        int(ResponseCode.NO_PERMISSION),
        int(ResponseCode.TOPIC_NOT_EXIST),
    }
)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class StagedPart:
    """What a task has staged; travels to the driver."""

    sink_id: str
    batch_id: int
    broker: str
    name: str
    partition: int
    message_count: int


# -- which broker ----------------------------------------------------------------------------------


def choose_broker(rules: SinkRules, sink_id: str, batch_id: int | None = None) -> str:
    """The broker that a sink publishes on; *batch_id* if one is to be staged now.

    Raises:
        PipelineError: none can, the one that is wanted cannot, or the one that did so far is away.
    """
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s)

    def ask() -> dict[str, int | None]:
        masters = sorted({each.name for each in remote.brokers() if each.is_master})
        if not masters:
            raise PipelineError(
                f"the name service {rules.nameserver} knows no broker: start one, or correct the "
                "option nameServer"
            ) from RouteNotFoundError("no broker")
        found: dict[str, int | None] = {}
        away: PipelineError | None = None
        for name in [name for name in masters if rules.broker in ("", name)]:
            try:
                found[name] = last_published(remote, name, sink_id)
            except PipelineError as error:
                if not is_passing(error):
                    raise
                away = error
        if away is not None and not any(
            batch is not None and batch >= 0 for batch in found.values()
        ):
            raise away  # it may be the one that has the sink
        if rules.broker and rules.broker not in found:
            raise PipelineError(
                f"there is no broker {rules.broker!r} to publish on: set the option broker to one "
                f"of {', '.join(masters)}"
            ) from RouteNotFoundError(rules.broker)
        return found

    last = rules.patience(f"the sink {sink_id!r} found no broker to publish on", ask)
    able = {name: batch for name, batch in last.items() if batch is not None}
    if rules.broker:
        if rules.broker not in able:
            raise PipelineError(_unable(rules.broker))
        _check_batch(rules, sink_id, batch_id, able[rules.broker])
        return rules.broker
    if not able:
        raise PipelineError(_unable(", ".join(last)))
    used = [name for name, batch in able.items() if batch >= 0]
    if used:
        chosen = max(used, key=lambda name: able[name])
        _check_batch(rules, sink_id, batch_id, able[chosen])
        return chosen
    if batch_id and rules.is_streaming:
        raise PipelineError(
            f"no broker remembers the sink {sink_id!r}, and this is its batch {batch_id}: start "
            "the broker that has its earlier batches, or name one with the option broker to go on "
            f"there ({', '.join(able)})"
        )
    return max(able, key=lambda name: hashlib.sha256(f"{sink_id} {name}".encode()).digest())


def _check_batch(rules: SinkRules, sink_id: str, batch_id: int | None, last: int) -> None:
    """Only the last batch is ever repeated; whoever numbers one lower is somebody else."""
    if batch_id is None or batch_id >= last:
        return
    known = f"the sink {sink_id!r} has published batch {last}, and this is batch {batch_id}: "
    if rules.is_streaming:
        raise PipelineError(
            f"{known}it belongs to another checkpoint, so set another sinkId, or go on with that "
            "checkpoint"
        )
    raise PipelineError(
        f"{known}nobody knows whether it was written, so set batchId to {last + 1} or more to "
        "write it, or another sinkId"
    )


def last_published(remote: Remote, broker: str, sink_id: str) -> int | None:
    """The last batch that a broker published for a sink, −1 for none; None if it has no sinks."""
    fields = encode_fields(SinkStatusRequest(sink_id=sink_id))
    try:
        answer = remote.request(broker, RequestCode.SINK_STATUS, fields)
    except PipelineError as error:
        cause = error.__cause__
        if (
            isinstance(cause, RequestRefusedError)
            and cause.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        ):
            return None
        raise
    return int((answer.ext or {})["lastBatchId"])


def _unable(brokers: str) -> str:
    return (
        f"delivery=exactly-once needs Rockhopper, and {brokers} cannot publish a batch at once "
        "(Apache RocketMQ cannot): set delivery=at-least-once"
    )


# -- staging ---------------------------------------------------------------------------------------


class PartWriter:
    """Stages the rows of one task."""

    def __init__(
        self,
        rules: SinkRules,
        sink_id: str,
        batch_id: int,
        partition: int,
        attempt: str,
    ) -> None:
        """*attempt* must be new for every try, those of a query that was killed included."""
        self._rules = rules
        self._remote = connect(rules.nameserver, timeout_s=rules.timeout_s)
        self._broker = choose_broker(rules, sink_id, batch_id)
        self._sink_id = sink_id
        self._batch_id = batch_id
        self._partition = partition
        self._name = f"{partition}.{attempt}"
        self._ids = part_ids(sink_id, batch_id, partition)
        self._sequence = 0
        self._count = 0
        self._queues = QueueOfKey(self._remote, rules, self._broker)
        self._under_way: tuple[Future[Command], dict[str, str], bytes, str] | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Stage everything.  Raises PipelineError; the part is then forgotten."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._add(encode_messages(batch, self._rules.topic, self._ids))
            self._settle()
        except BaseException:
            self._give_up()
            raise
        return StagedPart(
            self._sink_id, self._batch_id, self._broker, self._name, self._partition, self._count
        )

    def _add(self, messages: Messages) -> None:
        queue_ids = self._queues.of(messages)
        rows = list(
            zip(
                messages.topics,
                queue_ids,
                messages.flags,
                messages.born_ms,
                messages.properties,
                messages.bodies,
                strict=True,
            )
        )
        for start, end in pieces(messages.sizes, self._rules.batch_bytes, OVERHEAD_BYTES):
            largest = start + int(messages.sizes[start:end].argmax())
            what = (
                f"{end - start} messages, the largest of {len(messages.bodies[largest])} bytes for "
                f"the topic {messages.topics[largest]!r}, could not be staged for the sink "
                f"{self._sink_id!r}"
            )
            self._stage(_encode(rows[start:end]), what)
            self._count += end - start

    def _stage(self, body: bytes, what: str) -> None:
        """Send one request; the one before must have been answered, this one is not waited for."""
        self._settle()
        fields = encode_fields(
            SinkStageRequest(
                sink_id=self._sink_id,
                batch_id=self._batch_id,
                part=self._name,
                sequence=self._sequence,
            )
        )
        self._sequence += 1
        self._under_way = (self._begin(fields, body), fields, body, what)

    def _begin(self, fields: dict[str, str], body: bytes) -> "Future[Command]":
        return self._remote.begin_request(
            self._broker, RequestCode.SINK_STAGE, fields, body, timeout_s=self._rules.timeout_s
        )

    def _settle(self) -> None:
        if self._under_way is None:
            return
        answer, fields, body, what = self._under_way
        self._under_way = None
        first: list[Future[Command]] = [answer]

        def attempt() -> Command:
            # A request that comes twice changes nothing: its sequence tells.
            return result(first.pop() if first else self._begin(fields, body))

        try:
            self._rules.patience(what, attempt)
        except PipelineError as error:
            check_refusal(what, error)
            raise

    def _give_up(self) -> None:
        """Forget the part; it expires at the broker if that cannot be told."""
        with contextlib.suppress(PipelineError):  # what made us give up is what matters
            send_abort(self._remote, self._broker, self._sink_id, self._batch_id, [self._name])


def check_refusal(what: str, error: PipelineError) -> None:
    """Raise the sentence for what a broker refused; does nothing for any other error."""
    cause = error.__cause__
    if isinstance(cause, RequestRefusedError):
        remedy = "start the job again"
        if cause.code in _FAULTS_OF_ROWS:
            remedy = "correct these rows, or the topic"
        raise PipelineError(f"{what} ({error.sentence}): {remedy}") from error


class QueueOfKey:
    """Which queue of one broker each message goes to; −1 where the broker may choose."""

    def __init__(self, remote: Remote, rules: SinkRules, broker: str) -> None:
        self._remote = remote
        self._rules = rules
        self._broker = broker
        self._counts: dict[str, int] = {}
        self._known: dict[tuple[str, str], int] = {}

    def of(self, messages: Messages) -> list[int]:
        """A number for each message."""
        if messages.queue_ids is not None:
            return [-1 if number is None else number for number in messages.queue_ids]
        keys = messages.sharding_keys
        if keys is None:
            return [-1] * len(messages)
        known = self._known
        for topic, key in set(zip(messages.topics, keys, strict=True)):
            if key is not None and (topic, key) not in known:
                known[topic, key] = abs(java_string_hash(key)) % self._count(topic)
        return [
            -1 if key is None else known[topic, key]
            for topic, key in zip(messages.topics, keys, strict=True)
        ]

    def _count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            route = self._rules.patience(
                f"the queues of {topic!r} could not be asked for", lambda: self._remote.route(topic)
            )
            queues = writable(route, topic)
            count = sum(1 for queue in queues if queue.broker_name == self._broker)
            if not count:
                raise PipelineError(
                    f"the topic {topic!r} has no queue on the broker {self._broker!r}, which this "
                    "sink publishes on: create it there, or name another with the option broker"
                )
            self._counts[topic] = count
        return count


def writable(route: TopicRoute | None, topic: str) -> tuple[Any, ...]:
    """The queues that a sharding key is spread over.  Raises PipelineError if there are none."""
    if route is None or not route.write_queues:
        raise PipelineError(
            f"the topic {topic!r} does not exist, and sharding keys are spread over its queues: "
            f"create it first (rockhopper topic create {topic})"
        )
    return route.write_queues


def part_ids(sink_id: str, batch_id: int, partition: int) -> Callable[[int], list[str]]:
    """Ids for the messages of a part, the same whenever the batch is repeated.

    They look like a RocketMQ client's, whose last 16 bits count and whose 32 bits before are a
    time; here that is the beginning of the month.
    """
    made = 0

    def make(count: int) -> list[str]:
        nonlocal made
        found: list[str] = []
        while len(found) < count:
            block, first = divmod(made, 1 << 16)
            name = f"{sink_id}\n{batch_id}\n{partition}\n{block}".encode()
            head = hashlib.sha256(name).hexdigest()[:20].upper() + "00000000"
            end = min(first + count - len(found), 1 << 16)
            found += [f"{head}{number:04X}" for number in range(first, end)]
            made += end - first
        return found

    return make


# -- publishing ------------------------------------------------------------------------------------


def publish(rules: SinkRules, parts: list[StagedPart]) -> bool:
    """Publish a batch, once; False if it had been published before.

    Raises:
        PipelineError: it is not published, or nobody knows.
    """
    if not parts:
        return False
    first = parts[0]
    brokers = sorted({part.broker for part in parts})
    if len(brokers) > 1:
        raise PipelineError(
            f"the tasks of batch {first.batch_id} of the sink {first.sink_id!r} did not agree on a "
            f"broker ({', '.join(brokers)}), since one came or went meanwhile: start the job again"
        )
    fields = encode_fields(SinkBatchRequest(sink_id=first.sink_id, batch_id=first.batch_id))
    ordered = sorted(parts, key=lambda part: part.partition)
    body = encode_sink_body([SinkPart(part.name, part.message_count) for part in ordered])
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s)
    what = f"batch {first.batch_id} of the sink {first.sink_id!r} could not be published"
    try:
        answer = rules.patience(
            what,
            lambda: remote.request(
                first.broker, RequestCode.SINK_PUBLISH, fields, body, timeout_s=_PUBLISH_TIMEOUT_S
            ),
        )
    except PipelineError as error:
        check_refusal(what, error)
        raise
    return (answer.ext or {}).get("repeated") != "true"


# Publishing takes as long as writing and syncing the batch does.
_PUBLISH_TIMEOUT_S = 300.0


def abort(rules: SinkRules, parts: list[StagedPart]) -> None:
    """Forget parts; does nothing for a batch that is published.  Raises PipelineError."""
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s)
    for broker in sorted({part.broker for part in parts}):
        names = [part.name for part in parts if part.broker == broker]
        send_abort(remote, broker, parts[0].sink_id, parts[0].batch_id, names)


def send_abort(remote: Remote, broker: str, sink_id: str, batch_id: int, names: list[str]) -> None:
    """Tell a broker to forget parts.  Raises PipelineError."""
    fields = encode_fields(SinkBatchRequest(sink_id=sink_id, batch_id=batch_id))
    remote.request(broker, RequestCode.SINK_ABORT, fields, encode_sink_body(names))
