"""`rockhopper ha`: follow a RocketMQ master and take over from it; say who leads a static set."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import click

from rockhopper.client.commands.output import write_json, write_line
from rockhopper.client.commands.running import Failure, confirm, run

TAKEOVER_TIMEOUT_S = 120.0
_LOOK_INTERVAL_S = 0.2

_address_option = click.option(
    "--broker", "-b", metavar="HOST:PORT", required=True, help="The broker that follows."
)


@click.group()
def ha() -> None:
    """Follow a RocketMQ master and take over from it; say who leads a static set."""


@ha.command(context_settings={"ignore_unknown_options": True})
@click.option("--master", "-m", metavar="HOST:PORT", required=True, help="Its listenPort.")
@click.option("--store", metavar="DIRECTORY", required=True, help="For the copy; empty at first.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF THE BROKER]...")
def follow(master: str, store: str, options: Sequence[str]) -> None:
    """Run a broker that copies a master's log and tables, in the foreground.

    It refuses clients before it takes over. All options of `rockhopper-broker` may follow; give
    it the master's brokerName and brokerClusterName.

    \b
    Example:
      rockhopper ha follow --master 10.0.0.1:10911 --store /data/copy --name broker-a
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    own = ("--store", store, "--set", f"followMaster={master}")
    _become("rockhopper.broker", *own, *options)


def _become(module: str, *arguments: str) -> NoReturn:
    """Run a module of the broker in place of this process: the client does not import it."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


@ha.command()
@click.option("--engine", metavar="static:///DIRECTORY", required=True, help="As in haEngine.")
@click.option("--cluster", metavar="NAME", default="DefaultCluster", show_default=True)
@click.option("--name", metavar="NAME", required=True, help="The brokerName of the set.")
@click.option("--id", "replica_id", type=int, required=True, help="The haReplicaId to lead.")
def elect(engine: str, cluster: str, name: str, replica_id: int) -> None:
    """Say which replica of a set may lead that an operator switches (haEngine=static://...).

    The first time this begins the set. Later that replica leads as soon as the one before is gone
    or hands over; one that lacks messages is refused. Runs where the directory is mounted.

    \b
    Example:
      rockhopper ha elect --engine static:///mnt/sets --name broker-a --id 2
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    of_set = ("--engine", engine, "--cluster", cluster, "--name", name)
    _become("rockhopper.broker.ha.static.electing", *of_set, "--id", str(replica_id))


@ha.command()
@_address_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(broker: str, as_json: bool) -> None:
    """Show whom a broker follows, and how far behind it is."""
    run(_status(broker, as_json))


async def _status(address: str, as_json: bool) -> None:
    from rockhopper.client.admin.admin import Admin

    async with Admin() as admin:
        facts = await admin.broker_status(address)
    master = facts.get("followedMaster")
    if as_json:
        keys = ("commitLogMinOffset", "commitLogMaxOffset", "masterBehindBytes", "followState")
        write_json({"broker": address, "master": master, **{key: facts.get(key) for key in keys}})
    else:
        write_line(f"{address}: {facts['followState'] if master else 'follows nobody, and serves'}")


@ha.command()
@_address_option
@click.option("--force", is_flag=True, help="Even if messages may be lost by it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def takeover(broker: str, force: bool, yes: bool) -> None:
    """Let a broker that follows serve in its master's place, on its own ports.

    Refused while the master may be written to, or has what is not copied.
    """
    if force:
        confirm("What the master has and the copy has not is lost. Take over?", yes)
    run(_takeover(broker, force))


async def _takeover(address: str, force: bool) -> None:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.errors import ClientError

    async with Admin() as admin:
        if "followedMaster" not in await admin.broker_status(address):
            raise Failure(f"{address} follows nobody: it serves")
        await admin.take_over(address, force=force)
        until_s = time.monotonic() + TAKEOVER_TIMEOUT_S
        while time.monotonic() < until_s:
            try:
                if "followedMaster" not in await admin.broker_status(address):
                    write_line(f"{address} serves from now on")
                    return
            except ClientError:
                pass  # Its port is closed for a moment.
            await asyncio.sleep(_LOOK_INTERVAL_S)
    raise Failure(f"{address} has stopped following and does not serve yet: look at its log")
