"""`rockhopper user`: manages the users of brokers."""

import sys
from typing import TextIO

import click

from rockhopper.client.commands.output import print_table, write_json, write_line
from rockhopper.client.commands.running import (
    Failure,
    NoTerminal,
    broker_option,
    choose_nameserver,
    confirm,
    nameserver_option,
    run,
)
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.screen.watching import run_shown, watch_options
from rockhopper.client.commands.shell.reachable_brokers import list_reachable
from rockhopper.protocol.signing import SECRET_LENGTH_MIN

_secret_file = click.option(
    "--secret-file",
    type=click.File(),
    help="A file whose first line is the secret, - for standard input; default: ask for it.",
)


@click.group(cls=AliasedGroup)
def user() -> None:
    """List, add and remove users, and change their secrets.

    Your own credentials are in the file that --credentials or $ROCKHOPPER_CREDENTIALS_FILE names.
    """


@user.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per user.")
@watch_options
@broker_option
@nameserver_option
def list_users(as_json: bool, broker: str | None) -> None:
    """List the users of each broker."""
    names = choose_nameserver()
    run_shown(lambda: _list(as_json, broker, names))


async def _list(as_json: bool, broker: str | None, names: str | None) -> None:
    async with list_reachable(names, broker=broker) as admin:
        found = await admin.accounts.users(broker=broker)
    users = [{key: text for key, text in each.items() if key != "password"} for _, each in found]
    if as_json:
        for (name, _), info in zip(found, users, strict=True):
            write_json({"broker": name, **info})
        return
    rows = [
        (info["username"], info["userType"], info["userStatus"], name)
        for (name, _), info in zip(found, users, strict=True)
    ]
    print_table(("USER", "TYPE", "STATUS", "BROKER"), rows)


@user.command()
@click.argument("name")
@click.option(
    "--super", "is_super", is_flag=True, help="The user may do everything, and grant rights."
)
@_secret_file
@broker_option
@nameserver_option
def add(name: str, is_super: bool, secret_file: TextIO | None, broker: str | None) -> None:
    """Add a user NAME; prompts for a secret of at least 12 characters.

    An eavesdropper can replay the user's requests until the secret changes: use TLS (--tls,
    tlsServerMode=enforcing).
    """
    run(_add(name, _secret(secret_file), is_super, broker, choose_nameserver()))


async def _add(
    name: str, secret: str, is_super: bool, broker: str | None, names: str | None
) -> None:
    async with list_reachable(names, broker=broker, changes=True) as admin:
        for master in await admin.accounts.add_user(name, secret, is_super=is_super, broker=broker):
            write_line(f"{name} is a user on {master.name} ({master.address})")


@user.command()
@click.argument("name")
@_secret_file
@broker_option
@nameserver_option
def passwd(name: str, secret_file: TextIO | None, broker: str | None) -> None:
    """Give the user NAME another secret.

    Brokers close the user's connections; clients have to reconnect with the new secret.
    """
    run(_passwd(name, _secret(secret_file), broker, choose_nameserver()))


async def _passwd(name: str, secret: str, broker: str | None, names: str | None) -> None:
    async with list_reachable(names, broker=broker, changes=True) as admin:
        for master in await admin.accounts.change_secret(name, secret, broker=broker):
            write_line(f"{name} has a new secret on {master.name}")


@user.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@broker_option
@nameserver_option
def remove(name: str, yes: bool, broker: str | None) -> None:
    """Remove the user NAME and the user's rules."""
    confirm(f"Remove the user {name} and its rules?", yes)
    run(_remove(name, broker, choose_nameserver()))


async def _remove(name: str, broker: str | None, names: str | None) -> None:
    async with list_reachable(names, broker=broker, changes=True) as admin:
        known = {info["username"] for _, info in await admin.accounts.users(broker=broker)}
        if name not in known:
            raise Failure(f"there is no user {name}: nothing was removed")
        for master in await admin.accounts.remove_user(name, broker=broker):
            write_line(f"{name} is no longer a user on {master.name}")


def _secret(file: TextIO | None) -> str:
    """Read the secret from a file or a prompt, never from the command line."""
    if file is not None:
        secret = file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        secret = click.prompt("Secret", hide_input=True, confirmation_prompt=True)
    else:
        raise NoTerminal(
            "There is no terminal to type the secret at: supply it with --secret-file, - for "
            "standard input"
        )
    if len(secret) < SECRET_LENGTH_MIN:
        raise click.UsageError(
            f"the secret has {len(secret)} characters; at least {SECRET_LENGTH_MIN} are needed"
        )
    return str(secret)
