"""`rockhopper context`: the cluster that commands use, and how to connect to it."""

import os
import socket
from pathlib import Path
from typing import Any

import click

from rockhopper.client.commands.output import print_table, write_json, write_line, write_note
from rockhopper.client.commands.running import access_options
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.shell.completion import complete_contexts
from rockhopper.client.commands.shell.context_choice import CONTEXT_VARIABLE, choose_context
from rockhopper.client.commands.shell.contexts import (
    Context,
    Contexts,
    check_name,
)
from rockhopper.client.network.credentials import FILE_VARIABLE
from rockhopper.client.network.tls import (
    CA_VARIABLE,
    CERTIFICATE_VARIABLE,
    KEY_VARIABLE,
    TLS_VARIABLE,
    VERIFY_VARIABLE,
)

_known_name = click.argument("name", shell_complete=complete_contexts)


@click.group(cls=AliasedGroup)
def context() -> None:
    """Keep clusters, with TLS and credentials, under names.

    Options and the environment take precedence; --context NAME chooses one for a single command.
    """


@context.command()
@click.argument("name")
@click.option(
    "--nameserver", "-n", "nameserver", required=True, metavar="HOST:PORT[;...]", help="Its place."
)
@access_options
def add(name: str, nameserver: str) -> None:
    """Add a context NAME, or replace it. The first one is in use at once.

    \b
    Example:
      rockhopper context add prod -n 10.0.0.1:9876 --tls --credentials ~/.rockhopper/prod
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    _check_address(nameserver)
    contexts = Contexts.load()
    before = contexts.by_name.get(name)
    contexts.by_name[check_name(name)] = Context(
        nameserver,
        # access_options has set these from the options of TLS and --credentials.
        tls=os.environ.get(TLS_VARIABLE, "").lower() in ("true", "1", "yes", "on"),
        tls_ca=_find_absolute(CA_VARIABLE),
        tls_cert=_find_absolute(CERTIFICATE_VARIABLE),
        tls_key=_find_absolute(KEY_VARIABLE),
        tls_verify=os.environ.get(VERIFY_VARIABLE, "").lower() != "false",
        credentials=_find_absolute(FILE_VARIABLE),
    )
    if contexts.current is None:
        contexts.current = name
    contexts.save()
    used = (
        "it is in use" if contexts.current == name else f"use it by: rockhopper context use {name}"
    )
    write_line(f"{name} is saved in {contexts.path}; {used}")
    if before is not None:
        write_note(f"note: it replaces {name} at {before.nameserver}")


def _check_address(nameserver: str) -> None:
    """Reject an invalid address, and a host name without a port that cannot be resolved."""
    from rockhopper.client.network.addresses import parse_nameservers, split_address

    try:
        addresses = parse_nameservers(nameserver)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    for address in addresses:
        host, port = split_address(address)
        try:
            socket.getaddrinfo(host, port)
        except OSError:
            unknown = f"the host name {host!r} cannot be resolved here"
            if address not in nameserver:
                raise click.UsageError(
                    f"{unknown}: give the address as HOST:PORT; with a port, a host that cannot "
                    "be resolved yet is accepted"
                ) from None
            write_note(f"note: {unknown}")


def _find_absolute(variable: str) -> str | None:
    text = os.environ.get(variable)
    return str(Path(text).absolute()) if text else None


@context.command()
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--none", "is_none", is_flag=True, help="Use no context.")
def use(name: str | None, is_none: bool) -> None:
    """Use the context NAME from now on."""
    if (name is None) != is_none:
        raise click.UsageError("give one of NAME and --none")
    contexts = Contexts.load()
    if name is not None:
        contexts.get(name)
    contexts.current = name
    contexts.save()
    write_line("no context is in use" if name is None else f"{name} is in use")


@context.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per context.")
def list_contexts(as_json: bool) -> None:
    """List the contexts; "*" marks the one in use."""
    contexts = Contexts.load()
    used = _find_used()
    if as_json:
        for name, each in sorted(contexts.by_name.items()):
            write_json({"context": name, "inUse": name == used, **_json(each)})
    elif contexts.by_name:
        rows = [
            (
                "*" if name == used else "",
                name,
                each.nameserver,
                "yes" if each.tls else "no",
                each.credentials or "-",
            )
            for name, each in sorted(contexts.by_name.items())
        ]
        print_table(("", "CONTEXT", "NAME SERVER", "TLS", "CREDENTIALS"), rows)
    else:
        write_note("no contexts yet: rockhopper context add NAME -n HOST:PORT")


def _find_used() -> str | None:
    found = choose_context(None, has_nameserver=False)
    return None if found is None else found[0]


def _json(each: Context) -> dict[str, Any]:
    return {
        "nameserver": each.nameserver,
        "tls": each.tls,
        "tlsCa": each.tls_ca,
        "tlsCert": each.tls_cert,
        "tlsKey": each.tls_key,
        "tlsVerify": each.tls_verify,
        "credentials": each.credentials,
    }


@context.command()
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show(name: str | None, as_json: bool) -> None:
    """Show the context NAME, or the one in use and why."""
    contexts = Contexts.load()
    used = _find_used()
    if name is None and used is None:
        nameserver = os.environ.get("NAMESRV_ADDR")
        why = f"$NAMESRV_ADDR is {nameserver}" if nameserver else "none was selected"
        write_note(f"no context is in use: {why}")
        return
    shown = name or used or ""
    each = contexts.get(shown)
    if as_json:
        write_json({"context": shown, "inUse": shown == used, **_json(each)})
    else:
        _print_context(shown, each, is_used=shown == used)


def _print_context(name: str, shown: Context, *, is_used: bool) -> None:
    by = f"by ${CONTEXT_VARIABLE}" if os.environ.get(CONTEXT_VARIABLE) else "by context use"
    write_line(f"context       {name}{f' (in use, {by})' if is_used else ''}")
    write_line(f"name server   {shown.nameserver}")
    texts = [f"{name}={text}" for name, text in shown.variables().items()]
    for text in texts or ["no TLS, no credentials"]:
        write_line(f"              {text}")


@context.command()
@_known_name
def remove(name: str) -> None:
    """Remove the context NAME; its credentials file stays."""
    contexts = Contexts.load()
    contexts.get(name)
    del contexts.by_name[name]
    was_used = contexts.current == name
    if was_used:
        contexts.current = None
    contexts.save()
    write_line(f"{name} is removed" + ("; no context is in use now" if was_used else ""))
