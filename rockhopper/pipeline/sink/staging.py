"""Exactly once, in a task: stage its rows as a part on each broker that has its topics.

The distribution of rows over brokers does not matter: publishing.py decides once for a batch which
staged parts belong to it.
"""

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rockhopper.client.errors import RequestRefusedError, RouteNotFoundError
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import Remote, connect, result
from rockhopper.pipeline.sink.bad_rows import BadRows, Sieve
from rockhopper.pipeline.sink.choice import choose_broker, is_not_supported, unable
from rockhopper.pipeline.sink.encoding import Messages, pieces
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.pipeline.sink.runs import StageItems
from rockhopper.protocol.bodies.sinks import encode_sink_body
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.requests import encode_fields
from rockhopper.protocol.requests.extensions import SinkBatchRequest, SinkStageRequest

# The size of a message in a request besides its body and properties, at most or nearly so.
OVERHEAD_BYTES = 64
_FAULTS_OF_ROWS = frozenset(
    {
        int(ResponseCode.MESSAGE_ILLEGAL),
        int(ResponseCode.INVALID_PARAMETER),
        int(ResponseCode.NO_PERMISSION),
        int(ResponseCode.TOPIC_NOT_EXIST),
    }
)


@dataclass(frozen=True)
class TaskPart:
    """The part that a task has staged; Spark sends it to the driver."""

    sink_id: str
    batch_id: int
    name: str
    partition: int
    counts: Mapping[str, int]
    """Broker -> the number of its messages."""
    owner: str = ""
    """The owner of the sink's batches."""
    topics: frozenset[str] = frozenset()
    """The topics of the messages."""
    body_sum: int = 0
    """The sum of the checksums of all bodies, independent of order and broker."""

    @property
    def message_count(self) -> int:
        """The number of messages on all brokers."""
        return sum(self.counts.values())


@dataclass
class _InFlightStage:
    answer: Future[Command]
    fields: dict[str, str]
    body: bytes
    messages: Messages
    queue_ids: list[int]
    rows: Any
    """The rows of the messages, in the form that ``Messages.batch`` takes."""
    body_sum: int


@dataclass
class _Share:
    """The share of a part on one broker."""

    sequence: int = 0
    message_count: int = 0
    under_way: _InFlightStage | None = None


class PartWriter:
    """Stages the rows of one task."""

    def __init__(
        self,
        rules: SinkRules,
        sink_id: str,
        batch_id: int,
        partition: int,
        attempt: str,
        *,
        owner: str = "",
    ) -> None:
        """*attempt* must be unique for every try, even after the whole query was killed.

        *owner* is the owner of the sink's batches: a name that no other query has.
        """
        self._rules = rules
        self._remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
        self._topics: set[str] = set()
        self._staged_topics: set[str] = set()
        self._owner = owner
        self._sink_id = sink_id
        self._batch_id = batch_id
        self._partition = partition
        self._name = f"{partition}.{attempt}"
        self._sieve = Sieve(rules, part_ids(sink_id, batch_id, partition))
        self._shares: dict[str, _Share] = defaultdict(_Share)
        self._queues = QueueOfRow(self._remote, rules)
        self._runs = StageItems(self._queues.count, partition + batch_id)
        self._turn = partition + batch_id
        self._body_sum = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskPart:
        """Stage all rows. If this raises PipelineError, the part is discarded."""
        try:
            for batch in batches:
                for messages in self._sieve.messages(batch):
                    self._add(messages)
            # The dead letter of a message that one broker refuses may go to another broker.
            while waiting := [name for name, share in self._shares.items() if share.under_way]:
                self._settle(waiting[0])
        except BaseException:
            self._give_up()
            raise
        counts = {broker: share.message_count for broker, share in self._shares.items()}
        return TaskPart(
            self._sink_id,
            self._batch_id,
            self._name,
            self._partition,
            counts,
            self._owner,
            frozenset(self._staged_topics),
            self._body_sum,
        )

    @property
    def bad(self) -> BadRows:
        """The rows that could not be staged."""
        return self._sieve.bad

    def _check(self, topics: set[str]) -> None:
        """Check that the batch may be written to *topics*. Raises PipelineError."""
        if new := topics - self._topics:
            choose_broker(self._rules, self._sink_id, self._batch_id, topics=new, owner=self._owner)
            self._topics |= new

    def _add(self, messages: Messages) -> None:
        self._check(set(messages.topics))
        if self._rules.sets_bad_rows_aside and (problems := self._queues.problems(messages)):
            for each in self._sieve.without(messages, problems, "queueId"):
                self._add(each)
            return
        brokers, queue_ids = self._queues.find_queues(messages)
        for start, end in pieces(messages.sizes, self._rules.batch_bytes, OVERHEAD_BYTES):
            for broker, rows in self._shared_out(messages, brokers, slice(start, end)).items():
                self._stage(broker, messages, queue_ids, rows)

    def _what(self, broker: str, sent: _InFlightStage) -> str:
        sizes = sent.messages.sizes[sent.rows]
        topic = sent.messages.topics[_first(sent.rows)]
        return (
            f"{len(sizes)} messages, the largest of {sizes.max()} bytes, for the topic {topic!r} "
            f"could not be staged on {broker} for the sink {self._sink_id!r}"
        )

    def _shared_out(
        self, messages: Messages, brokers: list[str] | None, rows: slice
    ) -> dict[str, Any]:
        """Distribute rows over brokers; rows for any broker stay together."""
        if brokers is None and len(set(messages.topics)) == 1:
            able = self._queues.brokers(messages.topics[0])
            self._turn += 1
            return {able[self._turn % len(able)]: rows}
        found: dict[str, list[int]] = defaultdict(list)
        turns: dict[str, str] = {}
        for row in range(rows.start, rows.stop):
            broker = brokers[row] if brokers is not None else ""
            if not broker:
                topic = messages.topics[row]
                if topic not in turns:
                    able = self._queues.brokers(topic)
                    self._turn += 1
                    turns[topic] = able[self._turn % len(able)]
                broker = turns[topic]
            found[broker].append(row)
        return {broker: np.array(some) for broker, some in found.items()}

    def _stage(self, broker: str, messages: Messages, queue_ids: list[int], rows: Any) -> None:
        """Send one request without waiting; first wait for the answer to the previous one."""
        self._staged_topics.update(messages.topics)
        body = encode_sink_body(self._runs.items(messages, queue_ids, rows, broker))
        self._settle(broker)
        share = self._shares[broker]
        fields = encode_fields(
            SinkStageRequest(
                sink_id=self._sink_id,
                batch_id=self._batch_id,
                part=self._name,
                sequence=share.sequence,
                owner=self._owner,
            )
        )
        share.sequence += 1
        share.message_count += len(messages.sizes[rows])
        answer = self._begin(broker, fields, body)
        body_sum = messages.body_sum(rows)
        self._body_sum += body_sum
        share.under_way = _InFlightStage(answer, fields, body, messages, queue_ids, rows, body_sum)

    def _begin(self, broker: str, fields: dict[str, str], body: bytes) -> "Future[Command]":
        return self._remote.begin_request(
            broker, RequestCode.SINK_STAGE, fields, body, timeout_s=self._rules.timeout_s
        )

    def _settle(self, broker: str) -> None:
        """Wait for all requests to *broker*."""
        share = self._shares[broker]
        while share.under_way is not None:
            sent, share.under_way = share.under_way, None
            self._finish(broker, sent)

    def _finish(self, broker: str, sent: _InFlightStage) -> None:
        first: list[Future[Command]] = [sent.answer]
        what = self._what(broker, sent)

        def attempt() -> Command:
            # The broker ignores a request that arrives twice, by its sequence number.
            answer = first.pop() if first else self._begin(broker, sent.fields, sent.body)
            return result(answer)

        try:
            self._rules.patience(what, attempt)
        except PipelineError as error:
            if is_not_supported(error):
                raise PipelineError(unable(broker)) from error
            refusal = self._sieve.refusal(error.__cause__)
            if refusal is None:
                check_refusal(what, error)
                raise
            self._stage_again(broker, sent, str(refusal))

    def _stage_again(self, broker: str, sent: _InFlightStage, why: str) -> None:
        """Stage a refused request again in halves, until the bad rows are found."""
        share, messages, rows = self._shares[broker], sent.messages, sent.rows
        count = len(messages.sizes[rows])
        share.sequence -= 1
        share.message_count -= count
        self._body_sum -= sent.body_sum
        if count > 1:
            for half in _halves(rows):
                self._stage(broker, messages, sent.queue_ids, half)
            return
        letter = self._sieve.refuse(messages, _first(rows), why)
        if letter is not None:
            self._add(letter)

    def _give_up(self) -> None:
        """Discard the part; if a broker does not answer, the part expires there."""
        for broker in self._shares:
            with contextlib.suppress(PipelineError):  # the original error matters more
                send_abort(self._remote, broker, self._sink_id, self._batch_id, [self._name])


def _first(rows: Any) -> int:
    return int(rows.start if isinstance(rows, slice) else rows[0])


def _halves(rows: Any) -> tuple[Any, Any]:
    if isinstance(rows, slice):
        half = (rows.start + rows.stop) // 2
        return slice(rows.start, half), slice(half, rows.stop)
    half = len(rows) // 2
    return rows[:half], rows[half:]


def check_refusal(what: str, error: PipelineError) -> None:
    """Raise an error with a remedy if a broker refused the request; ignore any other error."""
    cause = error.__cause__
    if isinstance(cause, RequestRefusedError):
        remedy = "start the job again"
        if cause.code in _FAULTS_OF_ROWS:
            remedy = "correct these rows, or the topic"
        raise PipelineError(f"{what} ({error.sentence}): {remedy}") from error


class NoSuchQueue(PipelineError):
    """A row names a queue that its topic does not have."""


class QueueOfRow:
    """Finds the broker and queue of each message whose row names them."""

    def __init__(self, remote: Remote, rules: SinkRules) -> None:
        self._remote = remote
        self._rules = rules
        self._known: dict[str, tuple[MessageQueue, ...]] = {}
        self._turn = 0

    def find_queues(self, messages: Messages) -> tuple[list[str] | None, list[int]]:
        """Return the brokers (blank: any; None: no row names one) and queues (−1: any).

        Raises:
            PipelineError: the queue does not exist, or a broker that has queues is offline.
        """
        if not messages.has_targets:
            return None, [-1] * len(messages)
        brokers, queue_ids = [""] * len(messages), [-1] * len(messages)
        of_keys: dict[tuple[str, str], MessageQueue] = {}
        for row, topic in enumerate(messages.topics):
            key, number, name = messages.target(row)
            if number is None and name is None:
                if key is None:
                    continue
                queue = of_keys.get((topic, key))
                if queue is None:
                    queues = self._queues(topic)
                    at = abs(java_string_hash(key)) % len(queues)
                    queue = of_keys[topic, key] = queues[at]
            else:
                queue = self._fitting(topic, name, number)
            brokers[row], queue_ids[row] = queue.broker_name, queue.queue_id
        return brokers, queue_ids

    def _fitting(self, topic: str, name: str | None, number: int | None) -> MessageQueue:
        fitting = [
            queue
            for queue in self._queues(topic)
            if name in (None, queue.broker_name) and number in (None, queue.queue_id)
        ]
        if not fitting:
            known = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in self._queues(topic))
            raise NoSuchQueue(no_such_queue(topic, name, number, known))
        self._turn += 1
        return fitting[self._turn % len(fitting)]

    def brokers(self, topic: str) -> list[str]:
        """Return the brokers that accept messages for *topic*.

        Raises PipelineError if there is none.
        """
        return list(dict.fromkeys(queue.broker_name for queue in self._queues(topic)))

    def problems(self, messages: Messages) -> dict[int, str]:
        """Return row -> problem, for messages that name missing queues."""
        numbers, names = messages.queue_ids, messages.broker_names
        if numbers is None and names is None:
            return {}
        found: dict[int, str] = {}
        for row, topic in enumerate(messages.topics):
            number = numbers[row] if numbers is not None else None
            name = names[row] if names is not None else None
            try:
                if number is not None or name is not None:
                    self._fitting(topic, name, number)
            except NoSuchQueue as error:
                found[row] = error.sentence
        return found

    def count(self, topic: str, broker: str) -> int:
        """Return the number of writable queues of *topic*. Raises PipelineError for none."""
        return sum(1 for queue in self._queues(topic) if queue.broker_name == broker)

    def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        found = self._known.get(topic)
        if found is None:
            what = f"cannot query the queues of {topic!r}"
            found = self._known[topic] = self._rules.patience(what, lambda: self._ask(topic))
        return found

    def _ask(self, topic: str) -> tuple[MessageQueue, ...]:
        route = self._remote.route(topic)
        queues = writable(route, topic)
        if self._rules.broker:
            queues = tuple(each for each in queues if each.broker_name == self._rules.broker)
        elif route is not None and route.masterless_queues:
            away = route.masterless_queues[0].broker_name
            raise PipelineError(
                f"the broker {away!r}, which has queues of {topic!r}, is away: start it again, "
                "or take it from the name server if it is gone for good"
            ) from RouteNotFoundError(away)
        if not queues:
            raise PipelineError(
                f"the topic {topic!r} has no queue on the broker {self._rules.broker!r}, which "
                "this sink publishes on: create it there, or name another with the option broker"
            )
        return queues


def no_such_queue(topic: str, broker: str | None, number: int | None, known: str) -> str:
    """Return the error text for a row whose queue is not among those *known*."""
    return (
        f"a row is for queue {'any' if number is None else number} of {topic!r} on "
        f"{broker or 'any broker'}, which does not exist: correct its queueId and brokerName to "
        f"one of {known}"
    )


def writable(route: TopicRoute | None, topic: str) -> tuple[MessageQueue, ...]:
    """Return the queues that sharding keys select from. Raises PipelineError if there are none."""
    if route is None or not route.write_queues:
        raise PipelineError(
            f"the topic {topic!r} does not exist, and sharding keys are spread over its queues: "
            f"create it first (rockhopper topic create {topic})"
        )
    return route.write_queues


def part_ids(sink_id: str, batch_id: int, partition: int) -> Callable[[int], list[str]]:
    """Return a generator of message ids for a part; a repeated batch gets the same ids.

    The ids look like those of a RocketMQ client. Their last 16 bits are a counter, and the 32 bits
    before it are a time; here this time is the beginning of the month.
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


def abort(rules: SinkRules, parts: Sequence[TaskPart]) -> None:
    """Discard parts, except those that brokers keep for their batch. Raises PipelineError."""
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
    for broker in sorted({broker for part in parts for broker in part.counts}):
        names = [part.name for part in parts if broker in part.counts]
        send_abort(remote, broker, parts[0].sink_id, parts[0].batch_id, names)


def send_abort(remote: Remote, broker: str, sink_id: str, batch_id: int, names: list[str]) -> None:
    """Ask a broker to discard parts. Raises PipelineError."""
    fields = encode_fields(SinkBatchRequest(sink_id=sink_id, batch_id=batch_id))
    remote.request(broker, RequestCode.SINK_ABORT, fields, encode_sink_body(names))
