"""The options of ``expire``."""

# ruff: noqa: RUF009  (option() makes fields; it is no shared mutable default)

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from rockhopper.pipeline.jobs.kept_archives import Clock, keep_old_option, wall_clock_ms
from rockhopper.pipeline.jobs.options import (
    JobOptions,
    argument,
    duration_ms,
    option,
    topics_option,
)


@dataclass(frozen=True)
class ExpireOptions(JobOptions):
    """Expire the archive in *archive*."""

    archive: str | os.PathLike[str] = argument()
    _: KW_ONLY
    older_than_ms: int | None = option(
        "--older-than",
        parse=duration_ms,
        metavar="TIME",
        help="Remove files whose messages are all older than this, such as 90d; required.",
    )
    topics: Sequence[str] = topics_option()
    keep_old_ms: int = keep_old_option()
    now_ms: Clock = wall_clock_ms
