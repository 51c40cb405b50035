"""`python -m rockhopper.pipeline replay`."""

from typing import Any

import click

from rockhopper.client.commands.running import nameserver_option
from rockhopper.pipeline.jobs.replaying.options import ReplayOptions
from rockhopper.pipeline.jobs.running import name_brokers, options_of, run_asked


@click.command()
@options_of(ReplayOptions, is_copy=True)
@nameserver_option
def replay(source: str, is_agreed: bool, **asked: Any) -> None:
    """Send the messages of SOURCE, an archive or other Parquet files, to topics again.

    The same command continues an interrupted replay, and sends no message twice. TIME is ISO 8601
    (UTC unless it names a zone) or milliseconds since 1970.

    \b
    Examples:
      python -m rockhopper.pipeline replay history --topic orders --to orders-again --rate 2000
      python -m rockhopper.pipeline replay history --from 2026-11-20 --until 2026-11-21 --key A17
      python -m rockhopper.pipeline replay history --to orders=copy --key A17 --dry-run
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.replaying.job import replay as run_replay

    asked |= {"source": source}
    asked["nameserver"] = name_brokers(
        f"Send messages of {source} to the brokers behind {{}}?",
        is_agreed=is_agreed or asked["dry_run"],
        remedy="",
    )
    run_asked(run_replay, ReplayOptions, asked)
