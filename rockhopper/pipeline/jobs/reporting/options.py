"""The options of ``report``."""

# ruff: noqa: RUF009  (option() makes fields; it is no shared mutable default)

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from rockhopper.pipeline.jobs.options import (
    BrokersOptions,
    argument,
    option,
    time_ms,
    topics_option,
    without_option,
)
from rockhopper.pipeline.jobs.reporting.tables import CSV, PARQUET


def _formats(_flag: str, text: str) -> tuple[str, ...]:
    return (PARQUET, CSV) if text == "both" else (text,)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class ReportOptions(BrokersOptions):
    """Report on the store at *path*, on *archive*, or on the brokers behind *nameserver*."""

    output: str | os.PathLike[str] = argument(is_directory=True)
    _: KW_ONLY
    path: str | os.PathLike[str] | None = option(
        "--path", metavar="STORE", help="Count the messages in the files of this store."
    )
    archive: str | os.PathLike[str] | None = option(
        "--archive", metavar="DIRECTORY", help="Count the messages of this archive."
    )
    nameserver: str | None = None
    topics: Sequence[str] = topics_option()
    start_ms: int | None = option(
        "--from",
        parse=time_ms,
        metavar="TIME",
        help="From this store time on: ms, or ISO 8601 (UTC).",
    )
    end_ms: int | None = option("--until", parse=time_ms, metavar="TIME", help="Stored before.")
    formats: Sequence[str] = option(
        "--format",
        default=(PARQUET, CSV),
        typed_default="both",
        parse=_formats,
        choices=["both", PARQUET, CSV],
        show_default=True,
        help="How tables are written.",
    )
    watch_s: float | None = option(
        "--watch", type=float, metavar="SECONDS", help="Keep sampling lag at this interval."
    )
    watch_count: int | None = option(
        "--samples", type=int, metavar="N", help="With --watch: end after N samples."
    )
    without: Sequence[str] = without_option()
    now_ms: Callable[[], int] = _now_ms
    wait: Callable[[float], None] = time.sleep
