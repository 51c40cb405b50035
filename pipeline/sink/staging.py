"""Exactly once: parts are staged at one broker, which publishes a batch whole and once.

Which broker that is, choice.py says.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rockhopper.client.errors import RequestRefusedError
from rockhopper.client.network.routing import TopicRoute
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import Remote, connect, result
from rockhopper.pipeline.sink.bad_rows import BadRows, Sieve
from rockhopper.pipeline.sink.choice import choose_broker, choose_without_rows
from rockhopper.pipeline.sink.encoding import Messages, pieces
from rockhopper.pipeline.sink.home import keep_home, tell_home
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.pipeline.sink.runs import Runs
from rockhopper.protocol.bodies.sinks import SinkPart, encode_sink_body
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.requests import encode_fields
from rockhopper.protocol.requests.extensions import SinkBatchRequest, SinkStageRequest

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


@dataclass(frozen=True)
class StagedPart:
    """What a task has staged; travels to the driver."""

    sink_id: str
    batch_id: int
    broker: str
    """Blank if there was nothing to stage."""
    name: str
    partition: int
    message_count: int
    owner: str = ""
    """Whose batches those of the sink are."""


@dataclass
class _Staging:
    """A request that is under way."""

    answer: "Future[Command]"
    fields: dict[str, str]
    body: bytes
    rows: tuple[Messages, list[int], int, int]
    """The messages, their queues, and from which to which."""


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
        """*attempt* must be new for every try, those of a query that was killed included.

        *owner* says whose batches those of the sink are, by a name that no other query has.
        """
        self._rules = rules
        self._remote = connect(rules.nameserver, timeout_s=rules.timeout_s)
        self._broker = ""
        self._topics: set[str] = set()
        self._owner = owner
        self._sink_id = sink_id
        self._batch_id = batch_id
        self._partition = partition
        self._name = f"{partition}.{attempt}"
        self._sieve = Sieve(rules, part_ids(sink_id, batch_id, partition))
        self._sequence = 0
        self._count = 0
        self._queues = QueueOfKey(self._remote, rules)
        self._runs = Runs(self._queue_count, partition + batch_id)
        self._under_way: _Staging | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Stage everything. Raises PipelineError; the part is then forgotten."""
        try:
            for batch in batches:
                for messages in self._sieve.messages(batch):
                    self._add(messages)
            self._settle()
        except BaseException:
            self._give_up()
            raise
        if not self._broker:
            self._broker = choose_without_rows(
                self._rules, self._sink_id, self._batch_id, self._owner
            )
        return StagedPart(
            self._sink_id,
            self._batch_id,
            self._broker,
            self._name,
            self._partition,
            self._count,
            self._owner,
        )

    @property
    def bad(self) -> BadRows:
        """The rows that could not be staged."""
        return self._sieve.bad

    def _choose(self, topics: set[str]) -> None:
        """See which broker takes the messages for *topics*. Raises PipelineError."""
        new = topics - self._topics
        if not new:
            return
        chosen = choose_broker(
            self._rules, self._sink_id, self._batch_id, topics=new, owner=self._owner
        )
        if self._broker not in ("", chosen):
            raise PipelineError(
                f"the topics {min(self._topics)!r} and {min(new)!r} are on the brokers "
                f"{self._broker} and {chosen}, and a batch can be published exactly once on one "
                "only: write them with a sink for each, or set delivery=at-least-once"
            )
        self._broker = chosen
        self._topics |= new

    def _add(self, messages: Messages) -> None:
        self._choose(set(messages.topics))
        if self._rules.sets_bad_rows_aside and messages.queue_ids is not None:
            problems = self._queues.missing(messages, self._broker)
            if problems:
                for each in self._sieve.without(messages, problems, "queueId"):
                    self._add(each)
                return
        queue_ids = self._queues.of(messages, self._broker)
        for start, end in pieces(messages.sizes, self._rules.batch_bytes, OVERHEAD_BYTES):
            self._stage(messages, queue_ids, start, end)

    def _what(self, messages: Messages, start: int, end: int) -> str:
        largest = start + int(messages.sizes[start:end].argmax())
        return (
            f"{end - start} messages, the largest of {messages.sizes[largest]} bytes for "
            f"the topic {messages.topics[largest]!r}, could not be staged for the sink "
            f"{self._sink_id!r}"
        )

    def _queue_count(self, topic: str) -> int:
        return self._queues.count(topic, self._broker)

    def _stage(self, messages: Messages, queue_ids: list[int], start: int, end: int) -> None:
        """Send one request; the one before must have been answered, this one is not waited for."""
        body = encode_sink_body(self._runs.items(messages, queue_ids, start, end))
        self._settle()
        fields = encode_fields(
            SinkStageRequest(
                sink_id=self._sink_id,
                batch_id=self._batch_id,
                part=self._name,
                sequence=self._sequence,
                owner=self._owner,
            )
        )
        self._sequence += 1
        self._count += end - start
        rows = (messages, queue_ids, start, end)
        self._under_way = _Staging(self._begin(fields, body), fields, body, rows)

    def _begin(self, fields: dict[str, str], body: bytes) -> "Future[Command]":
        return self._remote.begin_request(
            self._broker, RequestCode.SINK_STAGE, fields, body, timeout_s=self._rules.timeout_s
        )

    def _settle(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way is not None:
            asked = self._under_way
            self._under_way = None
            self._finish(asked)

    def _finish(self, asked: _Staging) -> None:
        first = [asked.answer]
        what = self._what(asked.rows[0], *asked.rows[2:])

        def attempt() -> Command:
            # A request that comes twice changes nothing: its sequence tells.
            return result(first.pop() if first else self._begin(asked.fields, asked.body))

        try:
            self._rules.patience(what, attempt)
        except PipelineError as error:
            refusal = self._sieve.refusal(error.__cause__)
            if refusal is None:
                check_refusal(what, error)
                raise
            self._stage_again(*asked.rows, str(refusal))

    def _stage_again(
        self, messages: Messages, queue_ids: list[int], start: int, end: int, why: str
    ) -> None:
        """Stage by halves what was refused, until it is known which rows are at fault."""
        self._sequence -= 1
        self._count -= end - start
        if end - start > 1:
            half = (start + end) // 2
            self._stage(messages, queue_ids, start, half)
            self._stage(messages, queue_ids, half, end)
            return
        letter = self._sieve.refuse(messages, start, why)
        if letter is not None:
            self._add(letter)

    def _give_up(self) -> None:
        """Forget the part; it expires at the broker if that cannot be told."""
        if not self._broker:
            return
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

    def __init__(self, remote: Remote, rules: SinkRules) -> None:
        self._remote = remote
        self._rules = rules
        self._counts: dict[str, int] = {}
        self._known: dict[tuple[str, str], int] = {}

    def of(self, messages: Messages, broker: str) -> list[int]:
        """A number for each message, of the queues that *broker* has."""
        if messages.queue_ids is not None:
            return [-1 if number is None else number for number in messages.queue_ids]
        keys = messages.sharding_keys
        if keys is None:
            return [-1] * len(messages)
        known = self._known
        for topic, key in set(zip(messages.topics, keys, strict=True)):
            if key is not None and (topic, key) not in known:
                known[topic, key] = abs(java_string_hash(key)) % self.count(topic, broker)
        return [
            -1 if key is None else known[topic, key]
            for topic, key in zip(messages.topics, keys, strict=True)
        ]

    def missing(self, messages: Messages, broker: str) -> dict[int, str]:
        """What is wrong with the messages for queues that *broker* does not have."""
        found: dict[int, str] = {}
        for row, (topic, number) in enumerate(
            zip(messages.topics, messages.queue_ids or (), strict=True)
        ):
            if number is not None and not -1 <= number < (count := self.count(topic, broker)):
                found[row] = (
                    f"the topic {topic!r} has {count} queues on {broker}, and the row is for queue "
                    f"{number}"
                )
        return found

    def count(self, topic: str, broker: str) -> int:
        """How many queues of *topic* take messages there. Raises PipelineError if none does."""
        count = self._counts.get(topic)
        if count is None:
            route = self._rules.patience(
                f"the queues of {topic!r} could not be asked for", lambda: self._remote.route(topic)
            )
            queues = writable(route, topic)
            count = sum(1 for queue in queues if queue.broker_name == broker)
            if not count:
                raise PipelineError(
                    f"the topic {topic!r} has no queue on the broker {broker!r}, which this "
                    "sink publishes on: create it there, or name another with the option broker"
                )
            self._counts[topic] = count
        return count


def writable(route: TopicRoute | None, topic: str) -> tuple[Any, ...]:
    """The queues that a sharding key is spread over. Raises PipelineError if there are none."""
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


def publish(rules: SinkRules, parts: list[StagedPart]) -> bool:
    """Publish a batch, once; False if it had been published before.

    Raises:
        PipelineError: it is not published, or nobody knows.
    """
    # Tasks that had nothing to write may have chosen no broker.
    parts = [part for part in parts if part.broker]
    if not parts:
        return False
    first = parts[0]
    brokers = sorted({part.broker for part in parts})
    if len(brokers) > 1:
        raise PipelineError(
            f"the tasks of batch {first.batch_id} of the sink {first.sink_id!r} did not agree on a "
            f"broker ({', '.join(brokers)}), since they write to topics on several, or one came or "
            "went meanwhile: write to topics that are on one broker, and start the job again"
        )
    keep_home(rules.checkpoint, first.sink_id, first.broker)
    fields = encode_fields(
        SinkBatchRequest(sink_id=first.sink_id, batch_id=first.batch_id, owner=first.owner)
    )
    ordered = sorted(parts, key=lambda part: part.partition)
    body = encode_sink_body([SinkPart(part.name, part.message_count) for part in ordered])
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s)
    what = f"batch {first.batch_id} of the sink {first.sink_id!r} could not be published"

    def attempt() -> Command:
        tell_home(remote, first.sink_id, first.broker)
        return remote.request(
            first.broker, RequestCode.SINK_PUBLISH, fields, body, timeout_s=_PUBLISH_TIMEOUT_S
        )

    try:
        answer = rules.patience(what, attempt)
    except PipelineError as error:
        check_refusal(what, error)
        raise
    return (answer.ext or {}).get("repeated") != "true"


# Publishing takes as long as writing and syncing the batch does.
_PUBLISH_TIMEOUT_S = 300.0


def abort(rules: SinkRules, parts: list[StagedPart]) -> None:
    """Forget parts; does nothing for a batch that is published. Raises PipelineError."""
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s)
    for broker in sorted({part.broker for part in parts} - {""}):
        names = [part.name for part in parts if part.broker == broker]
        send_abort(remote, broker, parts[0].sink_id, parts[0].batch_id, names)


def send_abort(remote: Remote, broker: str, sink_id: str, batch_id: int, names: list[str]) -> None:
    """Tell a broker to forget parts. Raises PipelineError."""
    fields = encode_fields(SinkBatchRequest(sink_id=sink_id, batch_id=batch_id))
    remote.request(broker, RequestCode.SINK_ABORT, fields, encode_sink_body(names))
