"""The options of ``compact``."""

# ruff: noqa: RUF009  (option() makes fields; it is no shared mutable default)

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from rockhopper.pipeline.jobs.kept_archives import Clock, keep_old_option, wall_clock_ms
from rockhopper.pipeline.jobs.options import (
    JobOptions,
    RunTasks,
    argument,
    option,
    size,
    topics_option,
)

TARGET_BYTES = 128 << 20


@dataclass(frozen=True)
class CompactOptions(JobOptions):
    """Compact the archive in *archive*."""

    archive: str | os.PathLike[str] = argument()
    _: KW_ONLY
    topics: Sequence[str] = topics_option()
    target_size_bytes: int = option(
        "--target-size",
        default=TARGET_BYTES,
        typed_default="128m",
        show_default=True,
        parse=partial(size, least=1),
        metavar="SIZE",
        help="How large a merged file becomes; files of half that size are left alone.",
    )
    keep_old_ms: int = keep_old_option()
    run: RunTasks | None = None
    """Runs the tasks instead of Spark."""
    now_ms: Clock = wall_clock_ms
