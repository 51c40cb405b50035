"""`python -m rockhopper.pipeline search`."""

from typing import Any

import click

from rockhopper.client.commands.running import nameserver_option
from rockhopper.pipeline.jobs.running import nameserver_text, options_of, run_asked
from rockhopper.pipeline.jobs.searching.options import SearchOptions


@click.command()
@options_of(SearchOptions)
@nameserver_option
def search(is_live: bool, **asked: Any) -> None:
    """Find messages in a store or a cluster and in an archive, each once, the oldest first.

    \b
    Examples:
      python -m rockhopper.pipeline search --path /var/lib/rockhopper --key order-00042
      python -m rockhopper.pipeline search --live --archive history -t orders --contains refused
      python -m rockhopper.pipeline search --archive history --where "size(properties) > 5" --lines
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.searching.job import search as run_search

    asked["nameserver"] = nameserver_text(or_default=True) if is_live else None
    run_asked(run_search, SearchOptions, asked)
