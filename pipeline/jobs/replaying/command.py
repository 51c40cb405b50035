"""`python -m rockhopper.pipeline replay`."""

import click

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.running import (
    copies_option,
    job_options,
    named_brokers,
    nameserver_option,
    run_job,
)


@click.command()
@click.argument("source")
@click.option(
    "--to",
    "targets",
    multiple=True,
    metavar="TOPIC|OLD=NEW",
    help="The topic to send to; or for each topic another. Default: where messages came from.",
)
@click.option("--topic", "-t", "topics", multiple=True, help="Only this topic; repeatable.")
@click.option("--from", "start", metavar="TIME", help="Only messages stored at TIME or later.")
@click.option("--until", "end", metavar="TIME", help="Only messages stored before TIME.")
@click.option("--key", help="Only messages with this key.")
@click.option("--where", metavar="SQL", help="Only messages that this condition of SQL passes.")
@click.option("--rate", type=float, metavar="N", help="At most N messages per second.")
@click.option("--id", "job_id", metavar="ID", help="The replay's name; another one sends again.")
@click.option(
    "--delivery",
    type=click.Choice(["auto", "exactly-once", "at-least-once"]),
    default="auto",
    show_default=True,
    help="auto: exactly once where brokers can, which Apache's cannot.",
)
@click.option("--broker", default="", metavar="NAME", help="Publish on this broker.")
@click.option(
    "--state", metavar="DIRECTORY", help="Where to keep the plan; else beside the messages."
)
@copies_option
@job_options
@nameserver_option
def replay(
    source: str,
    targets: tuple[str, ...],
    topics: tuple[str, ...],
    start: str | None,
    end: str | None,
    key: str | None,
    where: str | None,
    rate: float | None,
    job_id: str | None,
    delivery: str,
    broker: str,
    state: str | None,
    is_agreed: bool,
    dry_run: bool,
    as_json: bool,
    master: str | None,
    quiet: bool,
) -> None:
    """Put messages of SOURCE, an archive or other Parquet files, back into topics.

    A replay that was interrupted goes on when the same is called again, and sends nothing twice.
    TIME is ISO 8601 (UTC unless it says else) or milliseconds since 1970.

    \b
    Examples:
      python -m rockhopper.pipeline replay history --topic orders --to orders-again --rate 2000
      python -m rockhopper.pipeline replay history --from 2026-11-20 --until 2026-11-21 --key A17
      python -m rockhopper.pipeline replay history --to orders=copy --key A17 --dry-run
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.replaying.job import replay as run_replay

    nameserver = named_brokers(
        f"Send messages of {source} to the brokers behind {{}}?",
        is_agreed=is_agreed or dry_run,
        remedy="",
    )
    run_job(
        lambda progress: run_replay(
            source,
            nameserver=nameserver,
            to=_mapping(targets),
            topics=topics,
            start_ms=_time_ms("--from", start),
            end_ms=_time_ms("--until", end),
            key=key,
            where=where,
            rate=rate,
            job_id=job_id,
            delivery=delivery,
            broker=broker,
            state=state,
            dry_run=dry_run,
            master=master,
            progress=progress,
        ),
        as_json=as_json,
        quiet=quiet,
    )


def _mapping(targets: tuple[str, ...]) -> str | dict[str, str] | None:
    from rockhopper.pipeline.jobs.results import UsageProblem

    pairs = [text.partition("=") for text in targets]
    if not pairs:
        return None
    plain = [old for old, equals, _ in pairs if not equals]
    if plain and len(pairs) > 1:
        raise UsageProblem(
            f"--to {plain[0]} sends everything there, so it goes with no other --to: leave the "
            "others out, or write OLD=NEW"
        )
    if plain:
        return plain[0]
    return {old: new for old, _, new in pairs}


def _time_ms(option: str, text: str | None) -> int | None:
    from rockhopper.pipeline.jobs.results import UsageProblem
    from rockhopper.pipeline.options import Options

    try:
        return Options("replay", {option: text or ""}, (option,)).time_ms(option)
    except PipelineError as error:
        raise UsageProblem(error.sentence) from None
