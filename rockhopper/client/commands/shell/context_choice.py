"""Chooses a command's name server and credentials: options, then environment, then context."""

import os
from collections.abc import Mapping

import click

from rockhopper.client.commands.shell.contexts import Context, Contexts
from rockhopper.client.network.addresses import NAMESERVER_VARIABLE
from rockhopper.client.network.credentials import ACCESS_KEY_VARIABLE, FILE_VARIABLE

CONTEXT_VARIABLE = "ROCKHOPPER_CONTEXT"
_IN_USE = "context in use"


def choose_nameserver() -> str | None:
    """Return the value of --nameserver or of a context, or None for the environment or default.

    The context's other settings are put into the environment, as for the options.
    """
    root = click.get_current_context().find_root()
    if _IN_USE not in root.meta:
        root.meta[_IN_USE] = None
        found = choose_context(root.meta.get("context"), "nameserver" in root.meta)
        if found is not None:
            root.meta[_IN_USE], context = found
            root.meta.setdefault("nameserver", context.nameserver)
            for variable, text in find_missing_variables(context).items():
                set_variable(root, variable, text)
    value = root.meta.get("nameserver")
    return str(value) if value is not None else None


def get_context_in_use() -> str | None:
    """Return the name of the context in use, once `nameserver` was called."""
    context = click.get_current_context(silent=True)
    name = None if context is None else context.find_root().meta.get(_IN_USE)
    return None if name is None else str(name)


def set_variable(root: click.Context, variable: str, value: str) -> None:
    """Set an environment variable while the command runs."""
    before = os.environ.get(variable)

    def restore() -> None:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before

    os.environ[variable] = value
    root.call_on_close(restore)


def choose_context(
    asked: str | None, has_nameserver: bool, environment: Mapping[str, str] = os.environ
) -> tuple[str, Context] | None:
    """Return the context in use: the one *asked* for, else the current one.

    If the user names a name server (--nameserver, shown by *has_nameserver*, or $NAMESRV_ADDR), the
    current context is not used, because its credentials are not meant for other servers.
    """
    name = asked or environment.get(CONTEXT_VARIABLE) or None
    if name is None and (has_nameserver or environment.get(NAMESERVER_VARIABLE)):
        return None
    contexts = Contexts.load()
    name = name or contexts.current
    return None if name is None else (name, contexts.get(name))


def find_missing_variables(
    context: Context, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the context's variables that are not set by the environment or the options."""
    has_user = bool(environment.get(ACCESS_KEY_VARIABLE) or environment.get(FILE_VARIABLE))
    return {
        name: text
        for name, text in context.variables().items()
        if not environment.get(name) and not (name == FILE_VARIABLE and has_user)
    }
