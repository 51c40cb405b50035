"""The command `rockhopper`: send, read and manage messages from a shell."""

from importlib import import_module
from typing import Any

import click

from rockhopper.client.commands.running import EXIT_INTERRUPTED, nameserver_option
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.streams import use_standard_streams
from rockhopper.version import own_version

_PLACES = {
    "send": "send",
    "pull": "pull",
    "consume": "consume",
    "query": "find",
    "message": "find",
    "trace": "messages.trace",
    "request": "messages.request",
    "reply": "messages.request",
    "topic": "topic",
    "group": "group",
    "dlq": "dlq",
    "top": "screen.top",
    "broker": "broker",
    "cluster": "broker",
    "ha": "replication.ha",
    "user": "security.user",
    "acl": "security.acl",
    "auth": "security.auth",
    "bench": "bench",
    "context": "shell.context",
    "completion": "shell.completion",
}
"""Command -> the module below commands/ that defines it; imported when the command is used."""


class _MainGroup(AliasedGroup):
    """The main command group. Ctrl-C at a prompt exits like Ctrl-C anywhere else."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _PLACES:
            return None
        module = import_module(f"rockhopper.client.commands.{_PLACES[cmd_name]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def main(self, *args: Any, **options: Any) -> Any:
        with use_standard_streams("rockhopper"):
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.Abort, KeyboardInterrupt) as error:
            # click raises the same Abort for Ctrl-C and for the answer "no".
            if KeyboardInterrupt not in (type(error), type(error.__context__)):
                raise
            click.echo(err=True)
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=_MainGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(own_version(), prog_name="rockhopper")
@nameserver_option
def main() -> None:
    """Talk to RocketMQ brokers: ours and Apache's.

    Exit codes: 0 done, 1 refused or unreachable, 2 the command line is wrong.
    """
