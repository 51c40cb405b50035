"""`python -m rockhopper.pipeline expire`."""

from typing import Any

import click

from rockhopper.pipeline.jobs.expiring.options import ExpireOptions
from rockhopper.pipeline.jobs.running import options_of, run_asked


@click.command()
@options_of(ExpireOptions)
def expire(**asked: Any) -> None:
    """Remove the files of ARCHIVE whose messages are all older than --older-than.

    \b
    Examples:
      python -m rockhopper.pipeline expire history --older-than 90d --dry-run
      python -m rockhopper.pipeline expire history --older-than 90d -t clicks
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.expiring.job import expire as run_expire

    run_asked(run_expire, ExpireOptions, asked)
