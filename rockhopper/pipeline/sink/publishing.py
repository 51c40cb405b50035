"""Exactly once, on the driver: publish a batch on all its brokers, once.

    1  has an earlier try published or decided the batch? then its decision counts
    2  every broker prepares its parts, and keeps them from then on
    3  the sink's home decides; the first decision counts
    4  all other brokers publish, then the home

A batch on one broker skips these steps: publishing it is one step there. Staged parts that are not
in the decision are discarded.

Example: a batch is on the brokers a, the home, and b. The first try stages its parts, a decides for
them, b publishes its part, and the driver crashes. The second try stages the same rows again, as
other parts. In step 1 a returns the first decision. In step 4 b answers that it has already
published, and a publishes its part of the first try. The parts of the second try are discarded, so
each row is stored once.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import Remote, connect, result
from rockhopper.pipeline.sink.choice import check_gap, choose_broker, sink_state
from rockhopper.pipeline.sink.home import keep_home, tell_home
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.pipeline.sink.same_topics import check_same_topics
from rockhopper.pipeline.sink.staging import TaskPart, abort, check_refusal
from rockhopper.protocol.bodies.sinks import (
    SinkPart,
    SinkShares,
    decode_sink_shares,
    encode_sink_body,
)
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.requests import decode_fields, encode_fields
from rockhopper.protocol.requests.extensions import SinkBatchRequest, SinkDecideResponse

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")

# Publishing takes as long as it takes to write and sync the batch.
PUBLISH_TIMEOUT_S = 300.0


def publish(rules: SinkRules, parts: Sequence[TaskPart]) -> bool:
    """Publish a batch, once; return False if an earlier try had decided its contents.

    Raises:
        PipelineError: not all of the batch is published, or this is unknown; the next try
            continues.
    """
    return bool(parts) and _Publishing(rules, sorted(parts, key=lambda part: part.partition)).run()


class _Publishing:
    """The publication of one batch."""

    def __init__(self, rules: SinkRules, parts: Sequence[TaskPart]) -> None:
        first = parts[0]
        self._rules = rules
        self._parts = parts
        self._remote: Remote = connect(
            rules.nameserver, timeout_s=rules.timeout_s, access=rules.access
        )
        self._sink_id, self._owner = first.sink_id, first.owner
        self._batch_id = first.batch_id
        self._mine: SinkShares = {}
        for part in parts:
            for broker, count in part.counts.items():
                self._mine.setdefault(broker, []).append(SinkPart(part.name, count))
        count = sum(part.message_count for part in parts)
        self._content = f"{count}:{sum(part.body_sum for part in parts):x}"
        self._home = choose_broker(
            rules, self._sink_id, self._batch_id, staged=self._mine, owner=self._owner
        )
        self._mine.setdefault(self._home, [])
        self._known_content = ""

    def run(self) -> bool:
        """See ``publish``."""
        keep_home(self._rules.checkpoint, self._sink_id, self._home)
        check_same_topics(
            self._remote,
            self._rules.checkpoint,
            frozenset[str]().union(*(part.topics for part in self._parts)),
            fail_on_data_loss=self._rules.fail_on_data_loss,
        )
        decided = self._decided()
        self._check_content(self._known_content)
        if decided is None:
            state = sink_state(self._remote, self._home, self._sink_id)
            last = -1 if state is None else state.last_batch
            check_gap(self._rules, self._sink_id, self._batch_id, last)
            self._tell_home()
            if len(self._mine) == 1:
                return self._alone()
            self._prepare()
            decided = self._ask(self._mine)
            self._check_batch(decided[0])
        self._finish(*decided)
        if decided[1] == self._mine:
            return True
        abort(self._rules, self._parts)
        return False

    def _tell_home(self) -> None:
        self._patiently(
            f"cannot notify the brokers besides {self._home} of {self._what()}",
            lambda: tell_home(self._remote, self._sink_id, self._home, self._mine),
        )

    def _alone(self) -> bool:
        sent = self._begin(RequestCode.SINK_PUBLISH, self._home, self._mine[self._home])
        answer = self._settle(sent)
        if _is_repeated(answer):
            self._check_content((answer.ext or {}).get("content", ""))
        return not _is_repeated(answer)

    def _check_content(self, known: str) -> None:
        """Check that a published or decided batch had the same rows. Raises PipelineError."""
        if known in ("", self._content):
            return
        theirs, ours = (content.partition(":")[0] for content in (known, self._content))
        said = (
            f"{self._what()} was published with {theirs} messages, and now has {ours} others: its "
            "checkpoint was put back to an earlier state, or the query makes other rows each time"
        )
        if self._rules.fail_on_data_loss:
            raise PipelineError(
                f"{said}; nothing of them is written: start over with a new checkpoint and "
                "sinkId, or set failOnDataLoss=false to continue without them"
            )
        _log.warning("%s; continuing without them, because failOnDataLoss=false", said)

    def _prepare(self) -> None:
        sent = [self._begin(RequestCode.SINK_PREPARE, *each) for each in self._mine.items()]
        for each in sent:
            if _is_repeated(self._settle(each)):
                raise PipelineError(
                    f"{each.broker} has published {self._what()}, and {self._home}, which "
                    "decides what belongs to it, knows nothing of that: its store was put back "
                    "from a backup, or lost; see what is published, and set another sinkId to "
                    "continue"
                )

    def _decided(self) -> tuple[int, SinkShares] | None:
        """Return the earlier decision on this batch; first finish an earlier batch."""
        batch_id, shares = self._ask()
        if 0 <= batch_id < self._batch_id:
            self._finish(batch_id, shares)
            finished, (batch_id, shares) = batch_id, self._ask()
            if batch_id == finished:
                raise PipelineError(
                    f"{self._home} has published {self._what(finished)}, but still reports it "
                    "as unpublished: check its log, and restart it"
                )
        if batch_id < 0:
            return None
        self._check_batch(batch_id)
        return batch_id, shares

    def _check_batch(self, decided: int) -> None:
        if decided != self._batch_id:
            raise PipelineError(
                f"batch {decided} of the sink {self._sink_id!r} is being published, and this "
                f"is batch {self._batch_id}: it belongs to another checkpoint, so set another "
                "sinkId, or continue with that checkpoint"
            )

    def _ask(self, shares: SinkShares | None = None) -> tuple[int, SinkShares]:
        """Ask the home for a decision: with *shares*, make one; without, return the earlier one."""
        body = encode_sink_body(shares) if shares else b""
        sent = self._send(
            RequestCode.SINK_DECIDE, self._home, body, f"{self._what()} could not be decided on"
        )
        answer = self._settle(sent)
        found = decode_fields(SinkDecideResponse, answer.ext)
        is_ours = found.batch_id == self._batch_id
        self._known_content = (found.content or "") if is_ours else ""
        return found.batch_id, decode_sink_shares(answer.body)

    def _finish(self, batch_id: int, shares: SinkShares) -> None:
        """Publish a decided batch: on the other brokers first, then on the home."""
        code, home = RequestCode.SINK_PUBLISH, self._home
        others = [name for name in sorted(shares) if name != home]
        for sent in [self._begin(code, name, shares[name], batch_id) for name in others]:
            self._settle(sent)
        if home in shares:
            self._settle(self._begin(code, home, shares[home], batch_id))

    def _begin(
        self, code: RequestCode, broker: str, parts: Sequence[SinkPart], batch_id: int | None = None
    ) -> "_SentRequest":
        verb = "published" if code is RequestCode.SINK_PUBLISH else "prepared"
        what = f"{self._what(batch_id)} could not be {verb}"
        return self._send(code, broker, encode_sink_body(parts), what, batch_id)

    def _send(
        self, code: RequestCode, broker: str, body: bytes, what: str, batch_id: int | None = None
    ) -> "_SentRequest":
        batch_id = self._batch_id if batch_id is None else batch_id
        fields = encode_fields(
            SinkBatchRequest(
                sink_id=self._sink_id,
                batch_id=batch_id,
                owner=self._owner,
                content=self._content if batch_id == self._batch_id else "",
            )
        )

        def ask() -> "Future[Command]":
            return self._remote.begin_request(
                broker, code, fields, body, timeout_s=PUBLISH_TIMEOUT_S
            )

        return _SentRequest(broker, f"{what} on {broker}", ask, [ask()])

    def _settle(self, sent: "_SentRequest") -> Command:
        """Return the answer; retry while that may help. Raises PipelineError."""
        under_way = sent.under_way
        return self._patiently(
            sent.what, lambda: result(under_way.pop() if under_way else sent.ask())
        )

    def _patiently(self, what: str, attempt: Callable[[], _Value]) -> _Value:
        try:
            return self._rules.patience(what, attempt)
        except PipelineError as error:
            check_refusal(what, error)
            raise

    def _what(self, batch_id: int | None = None) -> str:
        batch_id = self._batch_id if batch_id is None else batch_id
        return f"batch {batch_id} of the sink {self._sink_id!r}"


class _SentRequest(NamedTuple):
    """A request in progress, and the function that sends it again."""

    broker: str
    what: str
    ask: "Callable[[], Future[Command]]"
    under_way: "list[Future[Command]]"


def _is_repeated(answer: Command) -> bool:
    return (answer.ext or {}).get("repeated") == "true"
