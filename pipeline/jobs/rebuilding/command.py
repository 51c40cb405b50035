"""`python -m rockhopper.pipeline rebuild`."""

import click

from rockhopper.pipeline.jobs.option_values import size_option
from rockhopper.pipeline.jobs.running import job_options, run_job
from rockhopper.pipeline.jobs.store_options import index_options
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS


@click.command()
@click.argument("store")
@click.option("--output", metavar="DIRECTORY", help="Write queues and index here.")
@click.option(
    "--in-place",
    is_flag=True,
    help="Put them into the store, whose broker is stopped; what was there is moved aside.",
)
@click.option("--queue-file-size", metavar="SIZE", help="mappedFileSizeConsumeQueue.")
@click.option("--batch-queue-file-size", metavar="SIZE", help="mapperFileSizeBatchConsumeQueue.")
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
def rebuild(
    store: str,
    output: str | None,
    in_place: bool,
    queue_file_size: str | None,
    batch_queue_file_size: str | None,
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
    """Make consume queues and index files of the directory STORE anew from its commit log.

    Sizes are those of the files that are there, else RocketMQ's defaults. Exit code 1 says that
    the log is damaged or messages are missing: the queues are as good as they can be then.

    \b
    Examples:
      python -m rockhopper.pipeline rebuild /var/lib/rockhopper --output rebuilt
      python -m rockhopper.pipeline rebuild /var/lib/rockhopper --in-place
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.rebuilding.job import rebuild as run_rebuild

    run_job(
        lambda progress: run_rebuild(
            store,
            output,
            in_place=in_place,
            queue_file_size=size_option("--queue-file-size", queue_file_size),
            batch_queue_file_size=size_option("--batch-queue-file-size", batch_queue_file_size),
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
