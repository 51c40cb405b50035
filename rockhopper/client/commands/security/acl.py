"""`rockhopper acl`: manages the access rules of users."""

from typing import Any

import click

from rockhopper.client.commands.output import print_table, write_json, write_line
from rockhopper.client.commands.running import (
    Failure,
    broker_option,
    choose_nameserver,
    nameserver_option,
    run,
)
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.screen.watching import run_shown, watch_options
from rockhopper.client.commands.shell.reachable_brokers import list_reachable

_sources = click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="ADDRESS",
    help="Only from this address or network (10.0.0.0/8); repeatable.",
)


@click.group(cls=AliasedGroup)
def acl() -> None:
    """Allow or deny actions to users, and test the decisions.

    RESOURCE is *, Topic:name, Topic:prefix* or Topic:*, and the same with Group, Cluster and Sink.
    ACTIONS are Pub, Sub, Create, Update, Delete, Get, List, or All. The most specific rule for a
    resource decides; of equally specific rules, one that denies.
    """


def _add_deciding_command(name: str, text: str, *, is_allowed: bool) -> None:
    @acl.command(name, help=text)
    @click.argument("user")
    @click.argument("resource")
    @click.argument("actions", nargs=-1, required=True)
    @_sources
    @broker_option
    @nameserver_option
    def put(
        user: str,
        resource: str,
        actions: tuple[str, ...],
        sources: tuple[str, ...],
        broker: str | None,
    ) -> None:
        run(
            _put(
                user, resource, actions, sources, broker, choose_nameserver(), is_allowed=is_allowed
            )
        )


_add_deciding_command(
    "allow", "Allow USER the ACTIONS on RESOURCE, in addition to existing rules.", is_allowed=True
)
_add_deciding_command(
    "deny", "Deny USER the ACTIONS on RESOURCE; other rules stay.", is_allowed=False
)


async def _put(
    user: str,
    resource: str,
    actions: tuple[str, ...],
    sources: tuple[str, ...],
    broker: str | None,
    names: str | None,
    *,
    is_allowed: bool,
) -> None:
    async with list_reachable(names, broker=broker, changes=True) as admin:
        masters = await admin.accounts.add_rule(
            user, resource, actions, is_allowed=is_allowed, sources=sources, broker=broker
        )
    done = "may" if is_allowed else "may not"
    for master in masters:
        write_line(f"{user} {done} {', '.join(actions)} {resource} on {master.name}")


@acl.command()
@click.argument("user", required=False, default="")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per user.")
@watch_options
@broker_option
@nameserver_option
def show(user: str, as_json: bool, broker: str | None) -> None:
    """Show the rules of USER, or of all users."""
    names = choose_nameserver()
    run_shown(lambda: _show(user, as_json, broker, names))


async def _show(user: str, as_json: bool, broker: str | None, names: str | None) -> None:
    async with list_reachable(names, broker=broker) as admin:
        found = await admin.accounts.rules(user, broker=broker)
        if user and not found:
            users = await admin.accounts.users(broker=broker)
            if user not in {info["username"] for _, info in users}:
                raise Failure(f"there is no user {user}: 'rockhopper user list' lists all users")
    if as_json:
        for name, info in found:
            write_json({"broker": name, **info})
        return
    rows = [row for name, info in found for row in _rows(name, info)]
    print_table(("USER", "DECISION", "ACTIONS", "RESOURCE", "FROM", "POLICY", "BROKER"), rows)


def _rows(broker: str, info: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            info["subject"].removeprefix("User:"),
            entry["decision"],
            ", ".join(entry["actions"]),
            entry["resource"],
            ", ".join(entry["sourceIps"]) or "anywhere",
            policy["policyType"],
            broker,
        )
        for policy in info["policies"]
        for entry in policy["entries"]
    ]


@acl.command()
@click.argument("user")
@click.argument("resource", required=False, default="")
@broker_option
@nameserver_option
def remove(user: str, resource: str, broker: str | None) -> None:
    """Remove the rules of USER about RESOURCE, or all rules of USER."""
    run(_remove(user, resource, broker, choose_nameserver()))


async def _remove(user: str, resource: str, broker: str | None, names: str | None) -> None:
    async with list_reachable(names, broker=broker, changes=True) as admin:
        for master in await admin.accounts.remove_rules(user, resource, broker=broker):
            about = f"no rule about {resource}" if resource else "no rule"
            write_line(f"{user} has {about} on {master.name}")


@acl.command()
@click.argument("user")
@click.argument("action")
@click.argument("resource")
@click.option(
    "--from", "host", default="127.0.0.1", show_default=True, help="Test as if from this address."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per broker.")
@broker_option
@nameserver_option
def test(
    user: str, action: str, resource: str, host: str, as_json: bool, broker: str | None
) -> None:
    """Show whether USER may do ACTION on RESOURCE, and why.

    Prints the deciding rule. The exit code is 1 if it denies.
    """
    run(_test(user, action, resource, host, as_json, broker, choose_nameserver()))


async def _test(
    user: str,
    action: str,
    resource: str,
    host: str,
    as_json: bool,
    broker: str | None,
    names: str | None,
) -> None:
    async with list_reachable(names, broker=broker) as admin:
        found = await admin.accounts.decision(user, action, resource, host, broker=broker)
    for name, info in found:
        if as_json:
            write_json({"broker": name, **info})
        else:
            decision = "allowed" if info["isAllowed"] else "denied"
            write_line(f"{name}: {decision}: {info['why']}")
    if not all(info["isAllowed"] for _, info in found):
        raise Failure
