"""The validated options of the source ``rocketmq``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rockhopper.pipeline.access import ACCESS_OPTIONS, Access, read_access
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.pace import MAX_TRIGGER_DELAY_MS
from rockhopper.pipeline.network.positions import parse_json
from rockhopper.pipeline.options import NOT_SERVED, Options, suggest_nearest
from rockhopper.pipeline.retrying import Patience
from rockhopper.pipeline.schema import COLUMN_OPTIONS, choose_columns
from rockhopper.pipeline.where import Where, parse_where, read_where, with_columns
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import group_error, topic_error
from rockhopper.protocol.sql92 import compile_filter
from rockhopper.protocol.subscription import Subscription, check_tags_meant

SOURCE = "rocketmq"
_ALIASES = {
    "rocketmq.nameserver.address": "nameServer",
    "namesrvaddr": "nameServer",
    "topic": "subscribe",
    "group": "groupId",
    "pulltimeout": "pullTimeoutMs",
}
READ_OPTIONS = (
    "nameServer",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "topicIds",
    "logEpochs",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "groupId",
    "groupIdPrefix",
    "commitOffsets",
    "subExpression",
    "filterType",
    "where",
    "verifyCrc",
    "decompress",
    "pullBatchSize",
    "pullMaxBytes",
    "pullTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *ACCESS_OPTIONS,
    *COLUMN_OPTIONS,
)
PULL_BYTES = 2 << 20


@dataclass(frozen=True)
class Position:
    """A start or end position: a word, offsets as JSON, or times in ms."""

    word: str = ""
    offsets: Mapping[str, Any] = field(default_factory=dict)
    time_ms: int | None = None
    times_ms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicReadRules:
    """The settings of a read."""

    nameserver: str
    access: Access
    topics: tuple[str, ...]
    pattern: str
    assign: Mapping[str, Any]
    starting: Position
    ending: Position
    latest_if_no_time: bool
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    """The number of messages that a batch of a stream waits for,"""
    delay_max_ms: int
    """and the longest time it waits."""
    min_partitions: int | None
    max_records: int | None
    fail_on_data_loss: bool
    group: str
    commits: bool
    expression: str
    expression_type: str
    columns: tuple[str, ...]
    crc: Any
    decompress: bool
    reading_group: str
    """The group in whose name reads are counted; blank for RocketMQ's group for tools."""
    pull_count: int | None
    pull_bytes: int
    timeout_s: float
    patience: Patience
    where: str
    """A condition that ``wanted`` can parse, or empty."""
    topic_ids: Mapping[str, Any]
    """The expected topic ids of a batch, by topic and broker, if known."""
    read_in: Mapping[str, Any]
    """The epochs of each broker's log in which the offsets were read, if known."""
    is_streaming: bool = False

    @property
    def wanted(self) -> Where | None:
        """The condition on messages; None if all messages become rows."""
        return parse_where(self.where) if self.where else None

    @property
    def decoded_columns(self) -> tuple[str, ...]:
        """The requested columns and the columns of the condition."""
        return with_columns(self.columns, self.wanted)

    def wants_topic(self, topic: str) -> bool:
        """Return whether subscribe, subscribePattern or assign names a topic."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in (self.topics or self.assign)

    @property
    def is_filtered(self) -> bool:
        """Whether the broker filters messages."""
        return self.expression not in ("", "*")


def read_rules(given: Mapping[str, str], *, streaming: bool) -> TopicReadRules:
    """Read the rules from the options.

    Raises:
        PipelineError: an option is unknown, invalid, missing, or contradicts another.
    """
    options = Options(SOURCE, _drop_aliases(given), (*READ_OPTIONS, *NOT_SERVED))
    options.refuse_not_served()
    topics, pattern, assign = _choose_topics(options)
    group, prefix = _groups(options)
    commits = options.choice("commitOffsets", ("none", "onbatch")) == "onbatch"
    if commits and not group:
        raise PipelineError(
            "the option commitOffsets=onBatch needs a group to commit for: set groupId as well"
        )
    starting = _position(options, "starting", "latest" if streaming else "earliest")
    ending = _position(options, "ending", "latest")
    _check_positions(starting, ending, group=group, streaming=streaming)
    expression, expression_type = _filter(options)
    min_offsets, delay_max_ms = _pace(options)
    patience = Patience(
        options.integer("fetchOffset.numRetries", 20) or 0,
        (options.integer("fetchOffset.retryIntervalMs", 500) or 0) / 1000,
    )
    return TopicReadRules(
        nameserver=options.required("nameServer", "host:port of the name server, several with ;"),
        access=read_access(options),
        topics=topics,
        pattern=pattern,
        assign=assign,
        starting=starting,
        is_streaming=streaming,
        ending=ending,
        latest_if_no_time=options.choice("startingOffsetsByTimestampStrategy", ("latest", "error"))
        == "latest",
        max_offsets=options.integer("maxOffsetsPerTrigger", None, 1),
        max_bytes=options.size_bytes("maxBytesPerTrigger", None),
        min_offsets=min_offsets,
        delay_max_ms=delay_max_ms,
        min_partitions=options.integer("minPartitions", None, 1),
        max_records=options.integer("maxRecordsPerPartition", None, 1),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        group=group,
        commits=commits,
        expression=expression,
        expression_type=expression_type,
        columns=choose_columns(_drop_aliases(given)),
        crc=options.choice("verifyCrc", ("off", "flag", "fail")),
        decompress=options.boolean("decompress", True),
        reading_group=group or prefix,
        pull_count=options.integer("pullBatchSize", None, 1),
        pull_bytes=options.size_bytes("pullMaxBytes", PULL_BYTES) or PULL_BYTES,
        timeout_s=(options.integer("pullTimeoutMs", 30_000, 1) or 30_000) / 1000,
        patience=patience,
        where=read_where(options),
        topic_ids=_of_batches(options, "topicIds", streaming=streaming),
        read_in=_of_batches(options, "logEpochs", streaming=streaming),
    )


def _groups(options: Options) -> tuple[str, str]:
    """Return groupId and groupIdPrefix; blank if not set."""
    group = options.text("groupId")
    if group and (problem := group_error(group)) is not None:
        raise PipelineError(f"the option groupId cannot be used: {problem}")
    prefix = options.text("groupIdPrefix")
    if group and prefix:
        raise PipelineError("the options groupId and groupIdPrefix contradict each other: set one")
    if prefix and (problem := group_error(prefix)) is not None:
        raise PipelineError(f"the option groupIdPrefix cannot be used: {problem}")
    return group, prefix


def _check_positions(starting: Position, ending: Position, *, group: str, streaming: bool) -> None:
    if streaming and ending != Position("latest"):
        raise PipelineError(
            "a stream has no end: leave endingOffsets and endingTimestamp out, or read a batch "
            "(spark.read) or with the trigger availableNow"
        )
    if starting.word == "committed" and not group:
        raise PipelineError(
            "startingOffsets=committed starts where a group stands: set groupId as well"
        )
    start_ms, end_ms = starting.time_ms, ending.time_ms
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise PipelineError(
            "what is to be read ends before it starts: correct startingTimestamp or endingTimestamp"
        )
    if starting.word == "latest" and not streaming:
        raise PipelineError(
            "a batch that starts at latest is empty: set startingOffsets to earliest or to JSON"
        )


def _of_batches(options: Options, name: str, *, streaming: bool) -> Mapping[str, Any]:
    text = options.text(name)
    if text and streaming:
        raise PipelineError(
            f"a stream notes by itself of which topics and logs its offsets are: leave {name} out"
        )
    return parse_json(name, text) if text else {}


def _drop_aliases(given: Mapping[str, str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in given.items():
        proper = _ALIASES.get(name.lower(), name)
        other = next((known for known in named if known.lower() == proper.lower()), None)
        if other is not None and named[other] != value:
            raise PipelineError(
                f"the option {proper} is given twice, with two values: leave one out"
            )
        named[proper] = value
    return named


def _choose_topics(options: Options) -> tuple[tuple[str, ...], str, Mapping[str, Any]]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name)]
    if len(ways) != 1:
        said = " and ".join(ways) + " are" if ways else "none is"
        raise PipelineError(
            f"{SOURCE} takes exactly one of subscribe, subscribePattern and assign, and {said} "
            "given: set subscribe to a topic, or to several with commas"
        )
    topics = options.names("subscribe")
    for topic in topics:
        if (problem := topic_error(topic)) is not None:
            raise PipelineError(f"the option subscribe cannot be used: {problem}")
    pattern = options.text("subscribePattern")
    try:
        re.compile(pattern)
    except re.error as error:
        raise PipelineError(
            f"the option subscribePattern is not a valid regular expression ({error}): correct "
            f"{pattern!r}"
        ) from None
    text = options.text("assign")
    return topics, pattern, parse_json("assign", text) if text else {}


def _position(options: Options, which: str, default: str) -> Position:
    names = [f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"]
    given = [name for name in names if options.text(name)]
    if len(given) > 1:
        raise PipelineError(f"the options {' and '.join(given)} contradict each other: set one")
    if not given:
        return Position(default)
    name = given[0]
    text = options.text(name)
    if name.endswith("ByTimestamp"):
        return Position(times_ms=parse_json(name, text))
    if name.endswith("Timestamp"):
        return Position(time_ms=options.time_ms(name))
    if text.startswith("{"):
        return Position(offsets=parse_json(name, text))
    words = ("latest",) if which == "ending" else ("earliest", "latest", "committed")
    if text.lower() not in words:
        raise PipelineError(
            f"the option {name} is {text!r}{suggest_nearest(text, words)}: set it to "
            f"{' or '.join((', '.join(words), 'to JSON'))} such as "
            '{"orders": {"broker-a": {"0": 23}}}'
        )
    return Position(text.lower())


def _pace(options: Options) -> tuple[int | None, int]:
    """Return the number of messages that a batch waits for, and the longest wait in ms."""
    least = options.integer("minOffsetsPerTrigger", None, 1)
    if least is None and "maxTriggerDelay" in options:
        raise PipelineError(
            "the option maxTriggerDelay says how long minOffsetsPerTrigger may hold a batch back: "
            "set that as well, or leave maxTriggerDelay out"
        )
    most = options.integer("maxOffsetsPerTrigger", None, 1)
    if least is not None and most is not None and least > most:
        raise PipelineError(
            f"the option minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}: "
            "correct one of the two"
        )
    return least, options.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS)


def _filter(options: Options) -> tuple[str, str]:
    expression = options.text("subExpression", "*") or "*"
    kind = options.choice("filterType", ("tag", "sql92")).upper()
    if "filterType" not in options and any(sign in expression for sign in "<>="):
        raise PipelineError(
            f"the option subExpression={expression!r} looks like a condition over properties, and "
            "filterType is tag by default: set filterType=sql92, or filterType=tag if that is a tag"
        )
    try:
        Subscription("topic", expression, kind)
        if kind == "TAG" and "filterType" not in options:
            check_tags_meant("topic", expression)
        if kind == "SQL92":
            compile_filter(expression).check_meant()
    except ProtocolError as error:
        remedy = (
            "correct it"
            if kind == "SQL92"
            else "set filterType=sql92 for expressions such as price > 5"
        )
        raise PipelineError(
            f"the option subExpression={expression!r} is no filter of type {kind}: {error}; "
            f"{remedy}"
        ) from None
    return expression, kind
