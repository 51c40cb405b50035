"""`rockhopper ha elect` for a static set: the operator designates the replica that may lead.

The designated replica leads once the current master is gone or hands over. The election itself
works as with any engine. So a replica that lags, or that lost acknowledged messages, never wins.
"""

import sys
from pathlib import Path
from typing import NoReturn

import click

from rockhopper.broker.replication.engines.consensus.set_record import SetRecord
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.replication.engines.static.set_directory import SetDirectory
from rockhopper.broker.store.files import disk

SWAP_TRIES_MAX = 100
SCHEME = "static://"


class NotElectableError(Exception):
    """The replica may not lead; the message names the replicas that may."""


def set_path(place: str | Path, cluster_name: str, broker_name: str) -> Path:
    """Return the directory of a set below the one in haEngine."""
    return Path(place) / cluster_name / broker_name


def designate(directory: SetDirectory, replica_id: int) -> SetRecord:
    """Designate the only replica that may lead from now on; return the new record.

    Raises:
        NotElectableError: the replica is not in sync.
        EngineError: the directory cannot be used.
    """
    for _ in range(SWAP_TRIES_MAX):
        stored = directory.load_now()
        if stored.record.state:
            in_sync = sorted(each.id for each in stored.record.state.in_sync)
            if replica_id not in in_sync:
                raise NotElectableError(
                    f"replica {replica_id} is not in sync, so messages would be lost: wait until "
                    f"it has caught up, or elect one of {', '.join(map(str, in_sync))}"
                )
        record = stored.record.designating(replica_id)
        if directory.swap_now(record, stored.tag) is not None:
            return record
    raise EngineError(
        f"{directory.name} was changed {SWAP_TRIES_MAX} times by other processes: try again"
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--engine", metavar="static:///DIRECTORY", required=True, help="The value of haEngine."
)
@click.option("--cluster", metavar="NAME", default="DefaultCluster", help="brokerClusterName.")
@click.option("--name", metavar="NAME", default="broker-a", help="brokerName of the set.")
@click.option("--id", "replica_id", type=click.IntRange(1), required=True)
def main(engine: str, cluster: str, name: str, replica_id: int) -> None:
    """Elect the master of a replica set with haEngine=static.

    The first election creates the set. Later, the former master must have stopped, or hand over
    by a switch: two never lead at once.
    """
    place = Path(engine.removeprefix(SCHEME))
    if not engine.startswith(SCHEME) or not place.is_absolute():
        _fail(f"{engine} is not {SCHEME}/directory: other engines elect a master by themselves", 2)
    try:
        path = set_path(place, cluster, name)
        _make(place, path)
        record = designate(SetDirectory(path), replica_id)
    except (EngineError, NotElectableError) as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(f"{engine} cannot be used ({error.strerror}): is it mounted here?", 1)
    click.echo(_describe(record, replica_id, name))


def _make(mounted: Path, path: Path) -> None:
    if not mounted.is_dir():
        _fail(
            f"{mounted} is not a directory: mount the directory that all replicas of the set share",
            1,
        )
    disk.make_directories_durably(path)


def _describe(record: SetRecord, replica_id: int, name: str) -> str:
    leader = record.leader
    if leader and leader.id != replica_id:
        return (
            f"replica {replica_id} of {name} leads as soon as replica {leader.id} (epoch "
            f"{leader.epoch}) stops or hands over"
        )
    return f"replica {replica_id} of {name} may lead; no other may"


def _fail(line: str, exit_code: int) -> NoReturn:
    click.echo(f"rockhopper: {line}", err=True)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
