"""`python -m rockhopper.pipeline archive`."""

from pathlib import Path

import click

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.running import (
    copies_option,
    job_options,
    named_brokers,
    nameserver_option,
    nameserver_text,
    run_job,
    without_option,
)


@click.command()
@click.argument("directory")
@click.option(
    "--path", metavar="STORE", help="Read the files of this store, rather than ask brokers."
)
@click.option("--topic", "-t", "topics", multiple=True, help="Only this topic; repeatable.")
@click.option("--pattern", metavar="REGEX", help="Only topics whose whole name matches.")
@click.option(
    "--broker-name",
    default="",
    metavar="NAME",
    help="With --path: the broker of that store; needed for more than one store.",
)
@click.option(
    "--corrupt",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="With --path: what to do about damaged places of the log.",
)
@click.option(
    "--decode", type=click.Choice(["json", "avro"]), help="Decode bodies into the column value."
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="By this JSON Schema, schema of Spark's or Avro schema.",
)
@click.option(
    "--split-size", metavar="SIZE", help="With --path: how much of the log a task reads, as 256m."
)
@click.option("--allow-gaps", is_flag=True, help="Go on where messages have expired meanwhile.")
@without_option
@copies_option
@job_options
@nameserver_option
def archive(
    directory: str,
    path: str | None,
    topics: tuple[str, ...],
    pattern: str | None,
    broker_name: str,
    corrupt: str,
    decode: str | None,
    schema: Path | None,
    split_size: str | None,
    allow_gaps: bool,
    without: tuple[str, ...],
    is_agreed: bool,
    dry_run: bool,
    as_json: bool,
    master: str | None,
    quiet: bool,
) -> None:
    """Copy what is new in topics into the Parquet files of DIRECTORY, each message once.

    Run it again and again: it goes on where it ended, also after a kill. All topics are archived
    unless some are chosen, except RocketMQ's own and those that begin with %.

    \b
    Examples:
      python -m rockhopper.pipeline archive history --nameserver localhost:9876
      python -m rockhopper.pipeline archive history --path /var/lib/rockhopper --broker-name a
      python -m rockhopper.pipeline archive orders -t orders --decode json --schema order.json
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.archiving.job import archive as run_archive

    text = _read(schema) if schema is not None else None
    nameserver = nameserver_text()
    if path is None:
        what = " and ".join(topics) or (f"topics like {pattern}" if pattern else "every topic")
        nameserver = named_brokers(
            f"Archive {what} of the brokers behind {{}} into {directory}?",
            is_agreed=is_agreed or dry_run,
            remedy="--path STORE, ",
        )
    run_job(
        lambda progress: run_archive(
            directory,
            path=path,
            nameserver=nameserver,
            topics=topics,
            pattern=pattern,
            broker_name=broker_name,
            corrupt=corrupt,
            decode=decode,
            schema=text,
            split_size_bytes=_size_bytes(split_size),
            allow_gaps=allow_gaps,
            without=without,
            dry_run=dry_run,
            master=master,
            progress=progress,
        ),
        as_json=as_json,
        quiet=quiet,
    )


def _read(schema: Path) -> str:
    try:
        return schema.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f"{schema} cannot be read: {error}", param_hint="--schema"
        ) from None


def _size_bytes(text: str | None) -> int | None:
    from rockhopper.pipeline.jobs.results import UsageProblem
    from rockhopper.pipeline.options import Options

    options = Options("archive", {"--split-size": text or ""}, ("--split-size",))
    try:
        return options.size_bytes("--split-size", None, 4096)
    except PipelineError as error:
        raise UsageProblem(error.sentence) from None
