"""The options of jobs: one frozen class per job defines them for function and command line.

As a field of the function, an option has a name and a default. If ``option`` or ``argument``
creates it, it also has flags and help for the command line, which reads them from here
(running.py); ``parse`` converts the typed text. Nothing here depends on click.

    @dataclass(frozen=True)
    class DemoOptions(JobOptions):
        output: str = argument()
        _: KW_ONLY
        stream_s: float = option("--seconds", default=12.0, help="How long text is streamed.")

    @job(DemoOptions)
    def demo(asked: DemoOptions) -> DemoResult: ...

    demo("out", stream_s=3.0)
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rockhopper.client.network.tls import Tls
from rockhopper.pipeline.access import use_access
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.disk import name_disk_problems
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.options import Options
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Asked = TypeVar("Asked", bound="JobOptions")
Result = TypeVar("Result")
Fields = ParamSpec("Fields")
Parse = Callable[[str, Any], Any]
RunTasks = Callable[[Sequence[Any], Callable[[Any], Any], str], list[Any]]
"""Calls a function with each task, and returns the results in that order; the text is a label."""


def argument(metavar: str | None = None, **click: Any) -> Any:
    """Return a required field without a flag."""
    return field(metadata={"argument": metavar, "click": click})


def option(
    *flags: str,
    default: Any = None,
    parse: Parse | None = None,
    **click: Any,
) -> Any:
    """Return a field with flags; *click* are further arguments of click.option.

    *parse* receives the flag and the typed text, or the default (``typed_default`` if set), and may
    raise UsageProblem. If a command converts the value itself, it receives the text under
    ``typed_name``.
    """
    metadata = {"flags": flags, "parse": parse, "click": click}
    return field(default=default, metadata=metadata)


def size(flag: str, text: str | None, least: int = 1) -> int | None:
    """Parse a size such as ``128m``. Raises UsageProblem."""
    return _said(flag, lambda given: given.size_bytes(flag, None, least), text)


def time_ms(flag: str, text: str | None) -> int | None:
    """Parse a time: ms since 1970 or ISO 8601. Raises UsageProblem."""
    return _said(flag, lambda given: given.time_ms(flag), text)


def duration_ms(flag: str, text: str | None) -> int | None:
    """Parse a duration such as ``90d`` into ms. Raises UsageProblem."""
    return _said(flag, lambda given: given.duration_ms(flag, 0) if text else None, text)


def _said(flag: str, read: Callable[[Options], int | None], text: str | None) -> int | None:
    try:
        return read(Options("the command line", {flag: text or ""}, (flag,)))
    except PipelineError as error:
        raise UsageProblem(error.sentence) from None


def is_empty_span(start_ms: int | None, end_ms: int | None) -> bool:
    """Return whether no time is in the span, since it ends before it starts or at its start."""
    return start_ms is not None and end_ms is not None and start_ms >= end_ms


def topics_option() -> Any:
    """Return the field ``topics``."""
    help_ = "Only this topic; repeatable."
    return option("--topic", "-t", default=(), multiple=True, help=help_)


def without_option() -> Any:
    """Return the field ``without``, for jobs that query all brokers."""
    help_ = "Ignore this broker, which is gone for good; repeatable."
    return option("--without", default=(), multiple=True, metavar="BROKER", help=help_)


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options of every job."""

    dry_run: bool = option(
        "--dry-run", default=False, is_flag=True, help="Show what would be done; change nothing."
    )
    master: str | None = option(
        "--master", metavar="URL", help="Spark's master; else that of spark-submit, else local[*]."
    )
    spark: "SparkSession | None" = None
    """A session to use instead of a new one."""
    progress: JobProgress = field(default_factory=JobProgress)


@dataclass(frozen=True, kw_only=True)
class BrokersOptions(JobOptions):
    """The options of jobs that may connect to brokers.

    Both fields name files, which must exist on the driver and on every worker. With None, as from
    the command line, the environment decides.
    """

    tls: Tls = None
    """True, or TlsOptions."""
    credentials: str | Path | None = None
    """A file with a user name and secret."""


@dataclass(frozen=True)
class StoreOptions(JobOptions):
    """The options of jobs that compare the store at *path* with its log."""

    path: str = argument("STORE")
    _: KW_ONLY
    split_size: int | None = option(
        "--split-size",
        parse=size,
        metavar="SIZE",
        help="How much of the log a task reads, such as 256m.",
    )
    run: RunTasks | None = None
    """Runs the tasks instead of Spark."""
    index_slots: int | None = option(
        "--index-slots",
        least=1,
        metavar="N",
        help="maxHashSlotNum of the broker, if the index files do not show it.",
    )
    index_entries: int | None = option(
        "--index-entries", least=2, metavar="N", help="maxIndexNum, likewise."
    )
    index_tags: bool | None = option(
        "--index-tags/--no-index-tags",
        help="Whether tags are in the index, as in RocketMQ 5.4 and later; default: detected.",
    )
    batch_topics: Iterable[str] = option(
        "--batch-topic",
        default=(),
        multiple=True,
        metavar="TOPIC",
        help="A topic of type BatchCQ, if the store's configuration is missing; repeatable.",
    )
    delay_levels: str = option(
        "--delay-levels",
        default=DEFAULT_DELAY_LEVELS,
        metavar="LEVELS",
        help="messageDelayLevel of the broker, if it is not RocketMQ's.",
    )


def _access_of(asked: JobOptions) -> AbstractContextManager[None]:
    if isinstance(asked, BrokersOptions):
        return use_access(asked.tls, asked.credentials)
    return nullcontext()


def job(
    options: Callable[Fields, Asked],
) -> Callable[[Callable[[Asked], Result]], Callable[Fields, Result]]:
    """Decorate a function that takes *options* so that it is called with their fields.

    Raises:
        PipelineError: also for errors of the disk.
    """

    def decorate(function: Callable[[Asked], Result]) -> Callable[Fields, Result]:
        @wraps(function)
        def call(*args: Fields.args, **kwargs: Fields.kwargs) -> Result:
            with name_disk_problems():
                asked = options(*args, **kwargs)
                with _access_of(asked):
                    return function(asked)

        return call

    return decorate
