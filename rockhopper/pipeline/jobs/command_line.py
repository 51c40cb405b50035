"""The command ``python -m rockhopper.pipeline``."""

import sys
from importlib import import_module
from typing import Any

import click

from rockhopper.client.commands.running import EXIT_REFUSED, nameserver_option
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs import JOBS
from rockhopper.pipeline.jobs.running import report
from rockhopper.pipeline.session import naming_missing_packages
from rockhopper.streams import use_standard_streams
from rockhopper.version import own_version


class _Jobs(click.Group):
    """Imports a job only when it runs or shows its own help."""

    def main(self, *args: Any, **options: Any) -> Any:
        with use_standard_streams("pipeline"):
            return super().main(*args, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "rebuild":
            ctx.fail("there is no job rebuild any more: run rockhopper-broker store rebuild")
        if cmd_name not in JOBS:
            return None
        module = import_module(f"rockhopper.pipeline.jobs.{JOBS[cmd_name].package}.command")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with naming_missing_packages():
                return super().invoke(ctx)
        except PipelineError as error:
            report(error)
            sys.exit(EXIT_REFUSED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl([(name, job.summary) for name, job in JOBS.items()])


@click.group(
    cls=_Jobs,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="JOB [ARGS]...",
)
@click.version_option(own_version(), prog_name="pipeline")
@nameserver_option
def main() -> None:
    """Jobs on Spark over topics, stores and archives.

    Exit codes: 0 done, 1 it failed or found something wrong, 2 the command line is wrong.
    """
