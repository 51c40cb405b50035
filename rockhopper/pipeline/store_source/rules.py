"""The validated options of ``rocketmq-store``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import Options
from rockhopper.pipeline.schema import COLUMN_OPTIONS, choose_columns
from rockhopper.pipeline.where import Where, parse_where, read_where

SOURCE = "rocketmq-store"
OPTIONS = (
    "path",
    "commitLog",
    "splitSize",
    "startPhysOffset",
    "endPhysOffset",
    "topic",
    "queueId",
    "startingTimestamp",
    "endingTimestamp",
    "verifyCrc",
    "corruptRecords",
    "failOnDataLoss",
    "includeDeletedTopics",
    "brokerName",
    "decompress",
    "where",
    *COLUMN_OPTIONS,
)
SPLIT_SIZE_BYTES_MAX = 128 << 20
SPLIT_SIZE_BYTES_MIN = 16 << 20


@dataclass(frozen=True, slots=True)
class StoreReadRules:
    """The settings of a read; Spark sends them to the workers."""

    path: str
    columns: tuple[str, ...]
    commit_log: str | None = None
    """The directory of the commit log, if it is not below the root and not recorded there."""
    split_size_bytes: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    start_ms: int | None = None
    """Inclusive."""
    end_ms: int | None = None
    """Exclusive."""
    verify_crc: Literal["off", "flag", "fail"] = "off"
    corrupt_records: Literal["fail", "skip", "column"] = "fail"
    fail_on_data_loss: bool = True
    include_deleted_topics: bool = False
    broker_name: str = ""
    decompress: bool = True
    where: str = ""
    """A condition that ``wanted`` can parse, or empty."""

    @property
    def wanted(self) -> Where | None:
        """The condition on messages; None if all messages become rows."""
        return parse_where(self.where) if self.where else None


def read_rules(given: Mapping[str, str]) -> StoreReadRules:
    """Read the rules from the options *given*.

    Raises:
        PipelineError: an option is unknown, has an invalid value, or contradicts another one.
    """
    options = Options(SOURCE, given, OPTIONS)
    queue_ids = options.names("queueId")
    if not all(part.isdecimal() for part in queue_ids):
        raise PipelineError(
            f"the option queueId is {options.text('queueId')!r}: set it to numbers with commas "
            "between them"
        )
    rules = StoreReadRules(
        path=options.required("path", "the root of a store, or its commitlog directory"),
        columns=choose_columns(given),
        commit_log=options.text("commitLog") or None,
        split_size_bytes=options.size_bytes("splitSize", None, 4096),
        start_offset=options.integer("startPhysOffset"),
        end_offset=options.integer("endPhysOffset"),
        topics=frozenset(options.names("topic")) or None,
        queue_ids=frozenset(map(int, queue_ids)) or None,
        start_ms=options.time_ms("startingTimestamp"),
        end_ms=options.time_ms("endingTimestamp"),
        verify_crc=cast(
            Literal["off", "flag", "fail"], options.choice("verifyCrc", ("off", "flag", "fail"))
        ),
        corrupt_records=cast(
            Literal["fail", "skip", "column"],
            options.choice("corruptRecords", ("fail", "skip", "column")),
        ),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        include_deleted_topics=options.boolean("includeDeletedTopics", False),
        broker_name=options.text("brokerName"),
        decompress=options.boolean("decompress", True),
        where=read_where(options),
    )
    _refuse_empty("PhysOffset", "start", "end", rules.start_offset, rules.end_offset)
    _refuse_empty("Timestamp", "starting", "ending", rules.start_ms, rules.end_ms)
    return rules


def _refuse_empty(what: str, first: str, last: str, start: int | None, end: int | None) -> None:
    if start is not None and end is not None and start > end:
        raise PipelineError(
            f"the options {first}{what}={start} and {last}{what}={end} contradict each other, "
            "nothing is between them: swap them or leave one out"
        )
