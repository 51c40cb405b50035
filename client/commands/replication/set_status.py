"""`rockhopper ha status` of a replica set: who leads, who is in sync, and what to look at."""

import json
from typing import TYPE_CHECKING, Any

from rockhopper.client.commands.output import print_table, write_line
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin

TIMEOUT_S = 3.0
COLUMNS = ("REPLICA", "ADDRESS", "ROLE", "IN SYNC", "CLEAN", "LOG END", "BEHIND")


async def of_set(admin: "Admin", address: str) -> dict[str, Any] | None:
    """The set that the broker at *address* is a replica of; None if it is of none.

    Asked of its master, where that can be reached: it alone knows how far the others are.
    """
    try:
        status = await _ask(admin, address)
    except ClientError:
        return None
    master = next((each["address"] for each in status["replicas"] if each["isMaster"]), "")
    if master and master != address:
        try:
            return await _ask(admin, master) | {"asked": master}
        except ClientError:
            pass  # What the replica itself knows is shown.
    return status | {"asked": address}


async def _ask(admin: "Admin", address: str) -> dict[str, Any]:
    answer = await admin.request(address, RequestCode.GET_REPLICA_SET, timeout_s=TIMEOUT_S)
    return dict(json.loads(answer.body))


def show(status: dict[str, Any]) -> None:
    """Print it for people."""
    in_sync = sum(each["isInSync"] for each in status["replicas"])
    master = status["masterId"] or "nobody"
    write_line(
        f"epoch {status['epoch']}: replica {master} leads; {in_sync} of {len(status['replicas'])} "
        f"in sync, at least {status['minInSyncReplicas']} must be "
        f"(asked {status['asked']})"
    )
    print_table(COLUMNS, [_row(each, status) for each in status["replicas"]])
    for text in status["alarms"]:
        write_line(f"ALARM  {text}")
    if status["history"]:
        write_line("elections, the latest last:")
        for term in status["history"]:
            write_line(f"  epoch {term['epoch']}: replica {term['masterId']}, {term['why']}")


def _row(replica: dict[str, Any], status: dict[str, Any]) -> tuple[object, ...]:
    role = "master" if replica["isMaster"] else "follower"
    held, end = replica.get("heldOffset"), replica.get("logEnd")
    behind = "-" if held is None else max(status["logEnd"] - held, 0)
    return (
        replica["id"],
        replica["address"] or "-",
        role if replica["isRunning"] else "away",
        "yes" if replica["isInSync"] else "no",
        {True: "yes", False: "no", None: "-"}[replica.get("isClean")],
        "-" if end is None else end,
        0 if replica["isMaster"] else behind,
    )
