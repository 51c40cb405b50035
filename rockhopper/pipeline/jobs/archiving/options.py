"""The options of ``archive``."""

# ruff: noqa: RUF009  (option() makes fields; it is no shared mutable default)

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from rockhopper.pipeline.jobs.archiving.selection import Selection
from rockhopper.pipeline.jobs.options import (
    BrokersOptions,
    argument,
    option,
    size,
    topics_option,
    without_option,
)
from rockhopper.pipeline.jobs.results import UsageProblem

if TYPE_CHECKING:
    from rockhopper.pipeline.jobs.archiving.values import ValueFormat


@dataclass(frozen=True)
class ArchiveOptions(BrokersOptions):
    """Archive from the store at *path*, or from the brokers behind *nameserver*."""

    directory: str | os.PathLike[str] = argument()
    _: KW_ONLY
    path: str | os.PathLike[str] | None = option(
        "--path", metavar="STORE", help="Read the files of this store instead of brokers."
    )
    nameserver: str | None = None
    topics: Sequence[str] = topics_option()
    pattern: str | None = option(
        "--pattern",
        metavar="REGEX",
        help="Only topics with matching names; the pattern covers the whole name.",
    )
    broker_name: str = option(
        "--broker-name",
        default="",
        metavar="NAME",
        help="With --path: the broker of that store; needed for more than one store.",
    )
    corrupt: str = option(
        "--corrupt",
        default="fail",
        choices=["fail", "skip"],
        show_default=True,
        help="With --path: what to do about damaged places of the log.",
    )
    decode: str | None = option(
        "--decode",
        choices=["json", "avro", "confluent-avro"],
        help="Decode bodies into the column value.",
    )
    schema: str | None = option(
        "--schema",
        metavar="FILE",
        help="The schema: a JSON Schema, a schema of Spark or an Avro schema.",
    )
    """The text of that file."""
    registry: str = option(
        "--registry",
        default="",
        metavar="WHERE",
        help="With confluent-avro: the registry of schemas, http://HOST:8081, or a directory.",
    )
    subject: str = option(
        "--subject",
        default="",
        metavar="NAME",
        help="Without --schema: the subject whose newest schema is used; default: TOPIC-value.",
    )
    bad_values: str = option(
        "--bad-values",
        default="null",
        choices=["null", "fail"],
        show_default=True,
        help="With --decode: what to do about bodies that do not decode.",
    )
    split_size_bytes: int | None = option(
        "--split-size",
        parse=partial(size, least=4096),
        metavar="SIZE",
        help="With --path: how much of the log a task reads, as 256m.",
    )
    allow_gaps: bool = option(
        "--allow-gaps",
        default=False,
        is_flag=True,
        help="Continue if messages have expired meanwhile.",
    )
    without: Sequence[str] = without_option()
    warehouse: str | os.PathLike[str] | None = option(
        "--warehouse",
        metavar="DIR",
        help="For iceberg:CATALOG.NAMESPACE.TABLE: the catalog's directory or URI.",
    )
    iceberg_version: str | None = option(
        "--iceberg-version",
        metavar="VERSION",
        help="For iceberg: the version of the runtime, instead of the tested one.",
    )

    @cached_property
    def selection(self) -> Selection:
        """The selected topics. Raises UsageProblem."""
        return Selection(tuple(dict.fromkeys(self.topics)), self.pattern or "")

    @cached_property
    def value(self) -> "ValueFormat | None":
        """The format of bodies, if they are decoded. Raises PipelineError."""
        from rockhopper.pipeline.jobs.archiving.values import value_format

        if self.decode is None or (self.schema is None and not self.registry):
            return None
        subject = self.subject or (f"{self.topics[0]}-value" if len(self.topics) == 1 else "")
        if self.schema is None and not subject and self.registry.startswith("http"):
            raise UsageProblem(
                "which schema of the registry is to be the column's? Give one to read by "
                "(--schema), a --subject, or archive one topic"
            )
        return value_format(self.decode, self.schema, self.registry, subject)

    @property
    def source(self) -> str:
        """The source, as text for messages."""
        return f"the brokers behind {self.nameserver}" if self.path is None else str(self.path)
