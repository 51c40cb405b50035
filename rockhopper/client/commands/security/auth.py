"""`rockhopper auth`: imports users and rules from RocketMQ 4."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rockhopper.client.commands.output import format_count, write_line
from rockhopper.client.commands.running import (
    Failure,
    broker_option,
    choose_nameserver,
    nameserver_option,
    run,
)
from rockhopper.client.commands.shell.reachable_brokers import list_reachable
from rockhopper.protocol.signing import SECRET_LENGTH_MIN

if TYPE_CHECKING:
    from rockhopper.client.admin.plain_acl import PlainAccount, PlainAcl


@click.group()
def auth() -> None:
    """Import users and rules from RocketMQ 4."""


@auth.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@broker_option
@nameserver_option
def import_file(file: Path, dry_run: bool, broker: str | None) -> None:
    """Convert the accounts of FILE, a plain_acl.yml, to users; report what cannot be converted.

    Existing users stay unchanged.
    """
    run(_import(file, dry_run, broker, choose_nameserver()))


async def _import(file: Path, dry_run: bool, broker: str | None, names: str | None) -> None:
    from rockhopper.client.admin.admin import Admin

    acl = _read_acl(file)
    async with (
        Admin(names) if dry_run else list_reachable(names, broker=broker, changes=True) as admin
    ):
        known = set()
        if not dry_run:
            users = await admin.accounts.users(broker=broker)
            known = {info["username"] for _, info in users}
        for account in acl.accounts:
            if account.name in known:
                write_line(f"{account.name}: exists already, and is left unchanged")
                continue
            if not dry_run:
                await admin.accounts.add_account(account, broker=broker)
            _write_account(account)
            if len(account.secret) < SECRET_LENGTH_MIN:
                write_line(f"    the secret is short: rockhopper user passwd {account.name}")
    for sentence in acl.left_out:
        write_line(f"not imported: {sentence}")
    if acl.accounts:
        write_line(
            "RocketMQ 4 requires no right to groups in many requests: a user who is refused now "
            "needs a rule for the group (rockhopper acl allow USER Group:name Sub)"
        )


def _read_acl(file: Path) -> "PlainAcl":
    from rockhopper.client.admin.plain_acl import PlainAclError, read_plain_acl

    try:
        return read_plain_acl(file.read_text("utf-8"))
    except (PlainAclError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {error}") from None


def _write_account(account: "PlainAccount") -> None:
    kind = "Super user" if account.is_super else "user"
    write_line(f"{account.name}: {kind}, {format_count(len(account.rules), 'rule')}")
    for rule in account.rules:
        decision = "allow" if rule.is_allowed else "deny"
        default = ", by default" if rule.is_default else ""
        write_line(f"    {decision} {', '.join(rule.actions)} {rule.resource}{default}")
