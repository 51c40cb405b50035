"""`python -m rockhopper.pipeline archive`."""

from pathlib import Path
from typing import Any

import click

from rockhopper.client.commands.running import nameserver_option
from rockhopper.pipeline.jobs.archiving.options import ArchiveOptions
from rockhopper.pipeline.jobs.running import name_brokers, nameserver_text, options_of, run_asked


@click.command()
@options_of(ArchiveOptions, is_copy=True)
@nameserver_option
def archive(directory: str, path: str | None, is_agreed: bool, **asked: Any) -> None:
    """Copy the new messages of topics into Parquet files in DIRECTORY, each message once.

    Each run continues where the last one ended, also after a kill. By default all topics are
    archived, except RocketMQ's own and those that start with %.

    \b
    Examples:
      python -m rockhopper.pipeline archive history --nameserver localhost:9876
      python -m rockhopper.pipeline archive history --path /var/lib/rockhopper --broker-name a
      python -m rockhopper.pipeline archive orders -t orders --decode json --schema order.json
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.archiving.job import archive as run_archive

    asked |= {"directory": directory, "path": path, "nameserver": nameserver_text()}
    if asked["schema"] is not None:
        asked["schema"] = _read(Path(asked["schema"]))
    if path is None:
        topics, pattern = asked["topics"], asked["pattern"]
        what = " and ".join(topics) or (f"topics like {pattern}" if pattern else "every topic")
        asked["nameserver"] = name_brokers(
            f"Archive {what} of the brokers behind {{}} into {directory}?",
            is_agreed=is_agreed or asked["dry_run"],
            remedy="--path STORE, ",
        )
    run_asked(run_archive, ArchiveOptions, asked)


def _read(schema: Path) -> str:
    try:
        return schema.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f"{schema} cannot be read: {error}", param_hint="--schema"
        ) from None
