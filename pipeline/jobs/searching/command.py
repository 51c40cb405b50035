"""`python -m rockhopper.pipeline search`."""

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
@click.option("--path", metavar="STORE", help="Search the files of this store.")
@click.option("--live", is_flag=True, help="Search over the network (--nameserver).")
@click.option("--archive", metavar="DIRECTORY", help="Search this archive, too.")
@click.option("--key", "-k", metavar="KEY", help="One of the message's keys, or its unique key.")
@click.option("--tag", metavar="TAG", help="The message's tag.")
@click.option("--contains", "-c", metavar="TEXT", help="A piece of the body.")
@click.option("--sql92", metavar="CONDITION", help="Over properties, as consumers subscribe with.")
@click.option("--where", metavar="CONDITION", help="Spark's SQL over the columns.")
@click.option("--topic", "-t", "topics", multiple=True, help="Only this topic; repeatable.")
@click.option("--from", "start", metavar="TIME", help="Stored then or later: ms or ISO 8601, UTC.")
@click.option("--until", "end", metavar="TIME", help="Stored before.")
@click.option("--limit", default=100, show_default=True, help="So many messages at most.")
@click.option("--broker-name", metavar="NAME", help="The broker of the store at --path.")
@click.option("--lines", "as_json_lines", is_flag=True, help="Print each message as JSON.")
@without_option
@job_options
@nameserver_option
def search(
    path: str | None,
    live: bool,
    archive: str | None,
    key: str | None,
    tag: str | None,
    contains: str | None,
    sql92: str | None,
    where: str | None,
    topics: tuple[str, ...],
    start: str | None,
    end: str | None,
    limit: int,
    broker_name: str | None,
    as_json_lines: bool,
    without: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    master: str | None,
    quiet: bool,
) -> None:
    """Find messages in a store or a cluster and in an archive, each once, the oldest first.

    \b
    Examples:
      python -m rockhopper.pipeline search --path /var/lib/rockhopper --key order-00042
      python -m rockhopper.pipeline search --live --archive history -t orders --contains refused
      python -m rockhopper.pipeline search --archive history --where "size(properties) > 5" --lines
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.searching.job import search as run_search

    run_job(
        lambda progress: run_search(
            path,
            nameserver=_nameserver() if live else None,
            archive=archive,
            key=key,
            tag=tag,
            contains=contains,
            sql92=sql92,
            where=where,
            topics=topics,
            start_ms=time_option("--from", start),
            end_ms=time_option("--until", end),
            limit=limit,
            broker_name=broker_name,
            as_json_lines=as_json_lines,
            without=without,
            dry_run=dry_run,
            master=master,
            progress=progress,
        ),
        as_json=as_json,
        quiet=quiet,
    )


def _nameserver() -> str:
    from rockhopper.client.network.addresses import parse_nameservers

    return ";".join(parse_nameservers(nameserver_text()))
