"""The common start of jobs that change an archive of Parquet files without archiving messages.

Such a job is a run of the archive like any other: it holds the lock, first completes a killed run,
and commits a manifest. It moves the files that it removes to a place where readers of Parquet do
not look, and keeps them there for a while. So a replay that planned to read them still finds them
(archiving/catalog.py).
"""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.iceberg.runtime import table_name
from rockhopper.pipeline.jobs.archiving.manifest import Manifest
from rockhopper.pipeline.jobs.options import duration_ms, option
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.options import suggest_near_or_some

Clock = Callable[[], int]
KEEP_OLD_MS = 3_600_000


def wall_clock_ms() -> int:
    """Return the time of day."""
    return time.time_ns() // 1_000_000


def keep_old_option() -> Any:
    """Return the field ``keep_old_ms``."""
    return option(
        "--keep-old",
        default=KEEP_OLD_MS,
        typed_default="1h",
        show_default=True,
        parse=duration_ms,
        metavar="TIME",
        help="How long removed files stay below _rockhopper/replaced.",
    )


def archive_at(directory: str | os.PathLike[str]) -> Catalog:
    """Return the archive in *directory*. Raises PipelineError."""
    if table_name(str(directory)) is not None:
        raise UsageProblem(
            f"{directory} is a table of Iceberg's, which has procedures of its own for this: "
            "call rewrite_data_files, or DELETE FROM"
        )
    catalog = Catalog(files_at(str(directory)))
    if catalog.current() is None:
        raise PipelineError(
            f"there is no archive in {catalog.files.location}: give the directory that the job "
            "archive wrote to"
        )
    return catalog


def check_topics(catalog: Catalog, topics: Iterable[str]) -> None:
    """Check that the archive knows *topics*. Raises UsageProblem."""
    known = catalog.topics()
    for topic in topics:
        if topic not in known:
            raise UsageProblem(
                f"the archive {catalog.files.location} has no topic {topic!r}"
                f"{suggest_near_or_some(topic, sorted(known))}: correct the name"
            )


def bring_up(catalog: Catalog, progress: JobProgress, now_ms: int) -> Manifest:
    """Complete or clear a killed run, and return the newest manifest.

    The caller must hold the lock.
    """
    finished = catalog.recover()
    if finished is not None:
        progress.say(f"finished run {finished.run}, which had been killed")
    catalog.delete_replaced(now_ms)
    catalog.fold()
    current = catalog.current()
    assert current is not None
    return current
