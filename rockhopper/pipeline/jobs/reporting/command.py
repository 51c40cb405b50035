"""`python -m rockhopper.pipeline report`."""

from typing import Any

import click

from rockhopper.client.commands.running import nameserver_option
from rockhopper.pipeline.jobs.reporting.options import ReportOptions
from rockhopper.pipeline.jobs.running import nameserver_text, options_of, run_asked


@click.command()
@options_of(ReportOptions)
@nameserver_option
def report(**asked: Any) -> None:
    """Tell of traffic, tags, sizes, producers and lag: a page and tables in OUTPUT.

    Messages come from a store, from an archive, or else from brokers. Brokers that are named are
    asked for consumers' lag in any case; every run adds a sample to OUTPUT, and --watch adds more.

    \b
    Examples:
      python -m rockhopper.pipeline report traffic --nameserver localhost:9876
      python -m rockhopper.pipeline report traffic --path store -n localhost:9876 --watch 60
      python -m rockhopper.pipeline report november --archive history --from 2026-11-01
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.reporting.job import report as run_report

    has_files = asked["path"] is not None or asked["archive"] is not None
    asked["nameserver"] = nameserver_text(or_default=not has_files)
    run_asked(run_report, ReportOptions, asked)
