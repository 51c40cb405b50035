"""`python -m rockhopper.pipeline audit`."""

import click

from rockhopper.pipeline.jobs.option_values import size_option
from rockhopper.pipeline.jobs.running import job_options, run_job
from rockhopper.pipeline.jobs.store_options import index_options
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS


@click.command()
@click.argument("store")
@click.option("--archive", metavar="DIRECTORY", help="Compare this archive with the log as well.")
@click.option(
    "--broker-name", metavar="NAME", help="Which of the archive's brokers the store belongs to."
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="CHECK",
    help="Only this: crc, queues, index or archive; repeatable.",
)
@click.option(
    "--split-size", metavar="SIZE", help="How much of the log a task reads, such as 256m."
)
@index_options
@click.option(
    "--delay-levels",
    default=DEFAULT_DELAY_LEVELS,
    metavar="LEVELS",
    help="messageDelayLevel of the broker, if it is not RocketMQ's.",
)
@job_options
def audit(
    store: str,
    archive: str | None,
    broker_name: str | None,
    checks: tuple[str, ...],
    split_size: str | None,
    index_slots: int | None,
    index_entries: int | None,
    index_tags: bool | None,
    batch_topics: tuple[str, ...],
    delay_levels: str,
    dry_run: bool,
    as_json: bool,
    master: str | None,
    quiet: bool,
) -> None:
    """Look for everything that is wrong in the directory STORE, and say where and what to do.

    Every message's CRC, consume queues and index files against the commit log, and an archive
    against it. Nothing is changed, and a broker may run on the store. Exit code 1 says that
    something is wrong.

    \b
    Examples:
      python -m rockhopper.pipeline audit /var/lib/rockhopper
      python -m rockhopper.pipeline audit /var/lib/rockhopper --archive history --json
      python -m rockhopper.pipeline audit ~/store --check crc
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.auditing.job import audit as run_audit

    run_job(
        lambda progress: run_audit(
            store,
            archive=archive,
            broker_name=broker_name,
            checks=checks or None,
            index_slots=index_slots,
            index_entries=index_entries,
            index_tags=index_tags,
            batch_topics=batch_topics,
            delay_levels=delay_levels,
            split_size=size_option("--split-size", split_size),
            dry_run=dry_run,
            master=master,
            progress=progress,
        ),
        as_json=as_json,
        quiet=quiet,
    )
