"""`python -m rockhopper.pipeline report`."""

import click

from rockhopper.pipeline.jobs.option_values import time_option
from rockhopper.pipeline.jobs.running import (
    job_options,
    nameserver_option,
    nameserver_text,
    run_job,
    without_option,
)


@click.command()
@click.argument("output", type=click.Path(file_okay=False))
@click.option("--path", metavar="STORE", help="Count the messages in the files of this store.")
@click.option("--archive", metavar="DIRECTORY", help="Count the messages of this archive.")
@click.option("--topic", "-t", "topics", multiple=True, help="Only this topic; repeatable.")
@click.option(
    "--from", "start", metavar="TIME", help="From this store time on: ms, or ISO 8601 (UTC)."
)
@click.option("--until", "end", metavar="TIME", help="Stored before.")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["both", "parquet", "csv"]),
    default="both",
    show_default=True,
    help="How tables are written.",
)
@click.option("--watch", type=float, metavar="SECONDS", help="Go on sampling lag, so often.")
@click.option("--samples", type=int, metavar="N", help="With --watch: end after N samples.")
@without_option
@job_options
@nameserver_option
def report(
    output: str,
    path: str | None,
    archive: str | None,
    topics: tuple[str, ...],
    start: str | None,
    end: str | None,
    table_format: str,
    watch: float | None,
    samples: int | None,
    without: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    master: str | None,
    quiet: bool,
) -> None:
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

    run_job(
        lambda progress: run_report(
            output,
            path=path,
            archive=archive,
            nameserver=_nameserver(has_files=path is not None or archive is not None),
            topics=topics,
            start_ms=time_option("--from", start),
            end_ms=time_option("--until", end),
            formats=("parquet", "csv") if table_format == "both" else (table_format,),
            watch_s=watch,
            watch_count=samples,
            without=without,
            dry_run=dry_run,
            master=master,
            progress=progress,
        ),
        as_json=as_json,
        quiet=quiet,
    )


def _nameserver(*, has_files: bool) -> str | None:
    from rockhopper.client.network.addresses import parse_nameservers

    text = nameserver_text()
    return None if has_files and text is None else ";".join(parse_nameservers(text))
