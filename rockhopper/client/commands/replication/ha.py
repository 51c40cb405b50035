"""`rockhopper ha`: manages replica sets, and followers of a RocketMQ master."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import click

from rockhopper.client.commands.output import convert_facts, write_json, write_line
from rockhopper.client.commands.replication import set_status
from rockhopper.client.commands.replication.change import change
from rockhopper.client.commands.running import Failure, confirm, run
from rockhopper.protocol.codes import ResponseCode

TAKEOVER_TIMEOUT_S = 120.0
_LOOK_INTERVAL_S = 0.2

_address_option = click.option(
    "--broker",
    "-b",
    metavar="HOST:PORT",
    required=True,
    help="A replica, or a broker that follows a master.",
)


@click.group()
def ha() -> None:
    """See and change replica sets; follow a RocketMQ master."""


@ha.command(context_settings={"ignore_unknown_options": True})
@click.option("--master", "-m", metavar="HOST:PORT", required=True, help="Its listenPort.")
@click.option(
    "--store", metavar="DIRECTORY", required=True, help="Directory of the copy; empty at first."
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF THE BROKER]...")
def follow(master: str, store: str, options: Sequence[str]) -> None:
    """Run a broker that copies a master's log and tables, in the foreground.

    It refuses clients until it takes over. All options of `rockhopper-broker` are allowed; pass
    the master's brokerName and brokerClusterName.

    \b
    Example:
      rockhopper ha follow --master 10.0.0.1:10911 --store /data/copy --name broker-a
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    own = ("--store", store, "--set", f"followMaster={master}")
    _become("rockhopper.broker", *own, *options)


def _become(module: str, *arguments: str) -> NoReturn:
    """Replace this process by a module of the broker, which the client does not import."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


@ha.command()
@click.option("--engine", metavar="static:///DIRECTORY", default="", help="The value of haEngine.")
@click.option("--cluster", metavar="NAME", default="DefaultCluster", show_default=True)
@click.option("--name", metavar="NAME", default="", help="The brokerName of the set.")
@click.option("--id", "replica_id", type=int, default=0, help="The haReplicaId that may lead.")
@click.option("--unclean", is_flag=True, help="Elect it even if messages are lost.")
@click.option(
    "--broker", "-b", metavar="HOST:PORT", default="", help="With --unclean: the replica."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def elect(
    engine: str, cluster: str, name: str, replica_id: int, unclean: bool, broker: str, yes: bool
) -> None:
    """Choose the replica that may lead a set without automatic failover (haEngine=static://...).

    The first call starts the set. Later the chosen replica leads as soon as the previous master has
    ended or hands over. A replica that lacks messages is refused. Run it on a machine that has the
    directory mounted.

    With --unclean, a replica of any set leads although it may lack messages. Use this only if all
    replicas that have these messages are lost for good. Choose the one with the largest log end
    (rockhopper ha status).

    \b
    Examples:
      rockhopper ha elect --engine static:///mnt/sets --name broker-a --id 2
      rockhopper ha elect --unclean --broker 10.0.0.2:10911
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    if unclean:
        if not broker:
            raise click.UsageError("--unclean needs the replica to elect: --broker")
        confirm(f"Acknowledged messages that {broker} lacks are lost. Elect it?", yes)
        run(change(broker, "elect"))
        return
    if not (engine and name and replica_id):
        raise click.UsageError("--engine, --name and --id are needed, or --unclean and --broker")
    of_set = ("--engine", engine, "--cluster", cluster, "--name", name)
    _become(
        "rockhopper.broker.replication.engines.static.electing", *of_set, "--id", str(replica_id)
    )


@ha.command()
@_address_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(broker: str, as_json: bool) -> None:
    """Show the replica set of a broker, or the master that it copies."""
    run(_status(broker, as_json))


async def _status(address: str, as_json: bool) -> None:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.errors import RequestRefusedError

    async with Admin() as admin:
        try:
            found = await set_status.read_set_status(admin, address)
        except RequestRefusedError as error:
            facts = await admin.broker_status(address)
            master = facts.get("followedMaster")
            if master is None and error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        else:
            write_json(found) if as_json else set_status.show(found)
            return
    if as_json:
        keys = ("commitLogMinOffset", "commitLogMaxOffset", "masterBehindBytes", "followState")
        known = convert_facts({key: facts[key] for key in keys if key in facts})
        told = {key: known.get(key) for key in keys}
        write_json({"broker": address, "master": master, **told})
    else:
        write_line(
            f"{address}: {facts['followState'] if master else 'follows no master, and serves'}"
        )


@ha.command()
@_address_option
@click.option("--force", is_flag=True, help="Even if messages are lost.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def takeover(broker: str, force: bool, yes: bool) -> None:
    """Make a following broker serve in its master's place, on its own ports.

    Refused while the master accepts writes, or has messages that are not copied yet.
    """
    if force:
        confirm("Messages that the master has and the copy lacks are lost. Take over?", yes)
    run(_takeover(broker, force))


async def _takeover(address: str, force: bool) -> None:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.errors import ClientError

    async with Admin() as admin:
        if "followedMaster" not in await admin.broker_status(address):
            raise Failure(f"{address} follows no master: it serves already")
        await admin.take_over(address, force=force)
        until_s = time.monotonic() + TAKEOVER_TIMEOUT_S
        while time.monotonic() < until_s:
            try:
                if "followedMaster" not in await admin.broker_status(address):
                    write_line(f"{address} serves from now on")
                    return
            except ClientError:
                pass  # its port is closed for a moment
            await asyncio.sleep(_LOOK_INTERVAL_S)
    raise Failure(f"{address} has stopped following and does not serve yet: check its log")


@ha.command()
@click.option("--broker", "-b", metavar="HOST:PORT", required=True, help="The master.")
@click.option(
    "--to", "replica_id", type=int, help="The haReplicaId; else the replica with the longest log."
)
def switch(broker: str, replica_id: int | None) -> None:
    """Hand the mastership to another replica: no send fails, and no client has to reconnect.

    For an upgrade: switch away from the master, then restart it.
    """
    run(change(broker, "switch", replica_id))


@ha.command()
@click.option("--broker", "-b", metavar="HOST:PORT", required=True, help="The replica.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reseed(broker: str, yes: bool) -> None:
    """Replace a replica's store by its master's; the old store stays on its disk."""
    confirm(f"The store of {broker} will be replaced by its master's. Continue?", yes)
    run(change(broker, "reseed"))


@ha.command()
@click.option("--broker", "-b", metavar="HOST:PORT", required=True, help="Any replica of the set.")
@click.argument("replica_id", type=int, metavar="ID")
def forget(broker: str, replica_id: int) -> None:
    """Make a set stop waiting for a replica that is gone for good."""
    run(change(broker, "forget", replica_id))
