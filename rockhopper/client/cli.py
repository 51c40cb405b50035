"""The command `rockhopper`: send, read and manage messages from a shell."""

from typing import Any

import click

from rockhopper.client.commands.bench import bench
from rockhopper.client.commands.broker import broker, cluster
from rockhopper.client.commands.consume import consume
from rockhopper.client.commands.dlq import dlq
from rockhopper.client.commands.find import message, query
from rockhopper.client.commands.group import group
from rockhopper.client.commands.messages.request import reply, request
from rockhopper.client.commands.messages.trace import trace
from rockhopper.client.commands.pull import pull
from rockhopper.client.commands.replication.ha import ha
from rockhopper.client.commands.running import EXIT_INTERRUPTED, nameserver_option
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.screen.top import top
from rockhopper.client.commands.security.acl import acl
from rockhopper.client.commands.security.auth import auth
from rockhopper.client.commands.security.user import user
from rockhopper.client.commands.send import send
from rockhopper.client.commands.shell.completion import completion
from rockhopper.client.commands.shell.context import context
from rockhopper.client.commands.topic import topic
from rockhopper.streams import use_standard_streams

_COMMANDS: tuple[click.Command, ...] = (
    send,
    pull,
    consume,
    query,
    message,
    trace,
    request,
    reply,
    topic,
    group,
    dlq,
    top,
    broker,
    cluster,
    ha,
    user,
    acl,
    auth,
    bench,
    context,
    completion,
)


class _MainGroup(AliasedGroup):
    """The main command group. Ctrl-C at a prompt exits like Ctrl-C anywhere else."""

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
@click.version_option(package_name="rockhopper-mq", prog_name="rockhopper")
@nameserver_option
def main() -> None:
    """Talk to RocketMQ brokers: ours and Apache's.

    Exit codes: 0 done, 1 refused or unreachable, 2 the command line is wrong.
    """


for _command in _COMMANDS:
    main.add_command(_command)
