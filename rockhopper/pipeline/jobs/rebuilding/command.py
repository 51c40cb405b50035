"""`python -m rockhopper.pipeline rebuild`."""

from typing import Any

import click

from rockhopper.pipeline.jobs.rebuilding.options import RebuildOptions
from rockhopper.pipeline.jobs.running import options_of, run_asked


@click.command()
@options_of(RebuildOptions)
def rebuild(**asked: Any) -> None:
    """Rebuild the consume queues and index files of the directory STORE from its commit log.

    File sizes are those of the existing files, else RocketMQ's defaults. Exit code 1 means that the
    log is damaged or messages are missing; the queues then have all messages that can be read.

    \b
    Examples:
      python -m rockhopper.pipeline rebuild /var/lib/rockhopper --output rebuilt
      python -m rockhopper.pipeline rebuild /var/lib/rockhopper --in-place
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.rebuilding.job import rebuild as run_rebuild

    run_asked(run_rebuild, RebuildOptions, asked)
