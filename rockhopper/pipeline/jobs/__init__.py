"""Jobs for topics, stores and archives, as functions or with ``python -m rockhopper.pipeline JOB``.

    from rockhopper.pipeline import jobs
    result = jobs.archive("history", path="data")

Each job is a package here, listed in JOBS. Its ``job.py`` has a function with the name of the job.
It takes a session (or creates one) and a Progress, and returns a JobResult. Its ``command.py`` has
a click command of that name. A job's modules are imported on first use, so that help appears at
once, even without PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rockhopper.pipeline.jobs.archiving.job import archive
    from rockhopper.pipeline.jobs.auditing.job import audit
    from rockhopper.pipeline.jobs.compacting.job import compact
    from rockhopper.pipeline.jobs.demonstrating.job import demo
    from rockhopper.pipeline.jobs.expiring.job import expire
    from rockhopper.pipeline.jobs.packaging.job import package
    from rockhopper.pipeline.jobs.replaying.job import replay
    from rockhopper.pipeline.jobs.reporting.job import report
    from rockhopper.pipeline.jobs.searching.job import search

__all__ = [
    "JOBS",
    "Job",
    "archive",
    "audit",
    "compact",
    "demo",
    "expire",
    "package",
    "replay",
    "report",
    "search",
]


class Job(NamedTuple):
    """The package of a job, and a short summary."""

    package: str
    summary: str


JOBS: dict[str, Job] = {
    "archive": Job("archiving", "Copy topics into Parquet files, each message once."),
    "compact": Job("compacting", "Merge the small files of an archive into large ones."),
    "expire": Job("expiring", "Remove the files of an archive whose messages are old."),
    "replay": Job("replaying", "Send messages from Parquet files to topics again."),
    "audit": Job("auditing", "Check a store, and an archive of it, for damage."),
    "search": Job("searching", "Find messages by key, tag, body or condition."),
    "report": Job("reporting", "Report traffic, producers and lag, in tables and a page."),
    "demo": Job("demonstrating", "Stream, count, archive and replay text, all on this machine."),
    "package": Job("packaging", "Write this package into a zip for a cluster's executors."),
}
"""Jobs by name, in the order of the help text."""


def __getattr__(name: str) -> Any:
    if name in JOBS:
        from rockhopper.pipeline.session import naming_missing_packages

        with naming_missing_packages():
            return getattr(
                import_module(f"rockhopper.pipeline.jobs.{JOBS[name].package}.job"), name
            )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
