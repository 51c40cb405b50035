"""The validated options of the sink ``rocketmq``."""

from collections.abc import Mapping
from dataclasses import dataclass

from rockhopper.pipeline.access import ACCESS_OPTIONS, Access, read_access
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import NOT_SERVED, Options
from rockhopper.pipeline.retrying import Patience
from rockhopper.protocol.names import (
    DLQ_PREFIX,
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    group_error,
    topic_error,
)

SINK = "rocketmq"
_ALIASES = {"rocketmq.nameserver.address": "nameServer", "namesrvaddr": "nameServer"}
WRITE_OPTIONS = (
    "nameServer",
    "topic",
    "producerGroup",
    "sendTimeoutMs",
    "retries",
    "retryIntervalMs",
    "batchBytes",
    "compressOver",
    "delivery",
    "sinkId",
    "batchId",
    "broker",
    "onBadRow",
    "deadLetterTopic",
    "failOnDataLoss",
    *ACCESS_OPTIONS,
)
# Spark passes these options too.
_OF_SPARK = ("checkpointLocation", "queryName", "path")
SINK_ID_LENGTH_MAX = 255
BATCH_BYTES = 512 << 10
BATCH_BYTES_MAX = 4 << 20
STAGE_BYTES = 2 << 20


@dataclass(frozen=True)
class SinkRules:
    """The settings of a write."""

    nameserver: str
    access: Access
    topic: str
    """The topic of every row; empty if a column sets it."""
    group: str
    timeout_s: float
    patience: Patience
    batch_bytes: int
    compress_over: int | None
    is_streaming: bool
    is_exactly_once: bool
    sink_id: str
    """Empty: the id of the streaming query is used."""
    batch_id: int
    """The batch id of a batch write."""
    broker: str
    """The broker on which exactly-once publishes; empty: the broker that has the topic."""
    checkpoint: str = ""
    """The location of the query's checkpoint, if the options set it."""
    sets_bad_rows_aside: bool = False
    """Whether a write continues without the rows that cannot be sent."""
    dead_letter_topic: str = ""
    """The topic for rows that cannot be sent; empty if there is none."""
    fail_on_data_loss: bool = True
    """Whether a stream fails if a topic that it has written to was recreated."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics in the options."""
        return tuple(filter(None, (self.topic, self.dead_letter_topic)))


def read_rules(given: Mapping[str, str], *, streaming: bool) -> SinkRules:
    """Read the rules from the options.

    Raises:
        PipelineError: an option is unknown, invalid, missing, or contradicts another.
    """
    named = {_ALIASES.get(name.lower(), name): value for name, value in given.items()}
    options = Options(SINK, named, (*WRITE_OPTIONS, *_OF_SPARK, *NOT_SERVED))
    options.refuse_not_served()
    topic, group = _topic_and_group(options)
    exactly = options.choice("delivery", ("at-least-once", "exactly-once")) == "exactly-once"
    _check_delivery(options, exactly, streaming)
    batch_bytes = options.size_bytes("batchBytes", STAGE_BYTES if exactly else BATCH_BYTES)
    assert batch_bytes is not None
    if batch_bytes > BATCH_BYTES_MAX:
        raise PipelineError(
            f"the option batchBytes is {batch_bytes}: brokers take {BATCH_BYTES_MAX} bytes in one "
            "request, so set it to 4m or less"
        )
    on_bad_row, letters = _bad_rows(options, topic)
    compress_over = options.size_bytes("compressOver", None if exactly else 4096, 0)
    return SinkRules(
        nameserver=options.required("nameServer", "host:port of the name server, several with ;"),
        access=read_access(options),
        topic=topic,
        group=group,
        timeout_s=(options.integer("sendTimeoutMs", 10_000, 1) or 10_000) / 1000,
        patience=_patience(options),
        batch_bytes=batch_bytes,
        compress_over=compress_over or None,
        is_streaming=streaming,
        is_exactly_once=exactly,
        sink_id=options.text("sinkId"),
        batch_id=options.integer("batchId", 0) or 0,
        broker=options.text("broker"),
        checkpoint=options.text("checkpointLocation") if streaming else "",
        sets_bad_rows_aside=on_bad_row != "fail",
        dead_letter_topic=letters,
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
    )


def _topic_and_group(options: Options) -> tuple[str, str]:
    topic = options.text("topic")
    if topic and (problem := sendable_error(topic)) is not None:
        raise PipelineError(f"the option topic cannot be used: {problem}; name another")
    group = options.text("producerGroup", "spark-rocketmq-sink")
    if (problem := group_error(group)) is not None:
        raise PipelineError(f"the option producerGroup cannot be used: {problem}; name another")
    return topic, group


def _patience(options: Options) -> Patience:
    return Patience(
        options.integer("retries", 20) or 0,
        (options.integer("retryIntervalMs", 500) or 0) / 1000,
    )


def sendable_error(topic: str) -> str | None:
    """Return why clients cannot send to *topic*, as a sentence; None if the name is allowed."""
    problem = topic_error(topic)
    if problem is None and topic in NOT_SENDABLE_TOPICS:
        problem = f"only brokers may write to topic {topic!r}"
    return problem


def _bad_rows(options: Options, topic: str) -> tuple[str, str]:
    """Return the handling of rows that cannot be sent, and their topic."""
    chosen = options.choice("onBadRow", ("fail", "deadletter", "drop"))
    letters = options.text("deadLetterTopic")
    if chosen != "deadletter":
        if letters:
            raise PipelineError(
                "the option deadLetterTopic is for onBadRow=deadletter: set that as well, or leave "
                "deadLetterTopic out"
            )
        return chosen, ""
    if not letters:
        raise PipelineError(
            "onBadRow=deadletter needs the option deadLetterTopic, a topic for the rows that "
            "cannot be sent: set it (rockhopper topic create makes one), or set onBadRow=drop"
        )
    problem = sendable_error(letters)
    if problem is None and letters.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        problem = f"{letters!r} is for what consumers could not consume, and brokers write it"
    if problem is None and letters == topic:
        problem = "it is the topic that the good rows go to"
    if problem is not None:
        raise PipelineError(
            f"the option deadLetterTopic cannot be used: {problem}; name an ordinary topic"
        )
    return chosen, letters


def _check_delivery(options: Options, exactly: bool, streaming: bool) -> None:
    given = [name for name in ("sinkId", "batchId", "broker") if options.text(name)]
    if not exactly and given:
        raise PipelineError(
            f"the option {given[0]} is for delivery=exactly-once: set that as well, or leave "
            f"{given[0]} out"
        )
    if exactly and options.text("compressOver"):
        raise PipelineError(
            "the option compressOver is for delivery=at-least-once, since exactly-once stores "
            "bodies as they are: leave one of the two out"
        )
    if streaming and options.text("batchId"):
        raise PipelineError("a stream numbers its batches itself: leave the option batchId out")
    _check_sink_id(options.text("sinkId"), is_needed=exactly and not streaming)


def _check_sink_id(sink_id: str, *, is_needed: bool) -> None:
    if is_needed and not sink_id:
        raise PipelineError(
            "a batch write with delivery=exactly-once needs the option sinkId, a name that stays "
            "the same when the write is repeated: set it (and batchId to number several writes)"
        )
    if len(sink_id) > SINK_ID_LENGTH_MAX:
        raise PipelineError(
            f"the option sinkId has {len(sink_id)} characters: {SINK_ID_LENGTH_MAX} are allowed, "
            "so set a shorter one"
        )
