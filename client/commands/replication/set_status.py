"""`rockhopper ha status` of a replica set: who leads, who is in sync, and what to look at."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

from rockhopper.client.commands.output import print_table, write_line
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin

TIMEOUT_S = 3.0
COLUMNS = ("REPLICA", "ADDRESS", "ROLE", "IN SYNC", "CLEAN", "LOG END", "BEHIND")


async def of_set(admin: "Admin", address: str) -> dict[str, Any]:
    """The set that the broker at *address* is a replica of, as its master sees it.

    All of its replicas are asked: each knows of its own log and its own alarms, and the master
    alone how far the others are. ``answers`` says who did; alarms and notes begin with their owner.

    Raises:
        RequestRefusedError: it is of no set, or is starting.
        ClientError: it cannot be reached.
    """
    first = await _ask(admin, address)
    told = {first["id"]: first}
    others = {
        each["id"]: each.get("ownAddress") or each["address"]
        for each in first["replicas"]
        if each["address"] and each["id"] not in told
    }
    answers = await asyncio.gather(
        *(_ask(admin, other) for other in others.values()), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, dict):
            # Behind an address that all replicas have, another one may have answered.
            told.setdefault(answer["id"], answer)
        elif not isinstance(answer, ClientError):
            raise answer
    status = told.get(first["masterId"], first)
    for each in status["replicas"]:
        each["answers"] = each["id"] in told
        if each["answers"]:
            each["logEnd"] = told[each["id"]]["logEnd"]
    for kind in ("alarms", "notes"):
        status[kind] = [
            f"replica {number}: {text}"
            for number in sorted(told)
            for text in told[number].get(kind, ())
        ]
    return status | {"asked": others.get(status["id"], address)}


async def _ask(admin: "Admin", address: str) -> dict[str, Any]:
    answer = await admin.request(address, RequestCode.GET_REPLICA_SET, timeout_s=TIMEOUT_S)
    return dict(json.loads(answer.body))


def show(status: dict[str, Any]) -> None:
    """Print it for people."""
    in_sync = sum(each["isInSync"] for each in status["replicas"])
    write_line(
        f"epoch {status['epoch']}: {_leader(status)}; {in_sync} of {len(status['replicas'])} "
        f"in sync, at least {status['minInSyncReplicas']} must be "
        f"(asked {status['asked']})"
    )
    print_table(COLUMNS, [_row(each, status) for each in status["replicas"]])
    for text in status["alarms"]:
        write_line(f"ALARM  {text}")
    for text in status.get("notes", ()):
        write_line(f"NOTE   {text}")
    if status["history"]:
        write_line("elections, the latest last:")
        for term in status["history"]:
            write_line(f"  epoch {term['epoch']}: replica {term['masterId']}, {term['why']}")


def _leader(status: dict[str, Any]) -> str:
    elected = status["masterId"]
    leader = status.get("leaderId", elected)  # A broker of an earlier release does not say.
    if leader:
        return f"replica {leader} leads"
    return f"nobody leads, replica {elected} did last" if elected else "nobody leads"


def _row(replica: dict[str, Any], status: dict[str, Any]) -> tuple[object, ...]:
    role = "master" if replica["isMaster"] else "follower"
    if not replica["answers"]:
        role = "no answer"
    held, end = replica.get("heldOffset"), replica.get("logEnd")
    behind = "-" if held is None else max(status["logEnd"] - held, 0)
    return (
        replica["id"],
        replica.get("ownAddress") or replica["address"] or "-",
        role if replica["isRunning"] else "away",
        "yes" if replica["isInSync"] else "no",
        {True: "yes", False: "no", None: "-"}[replica.get("isClean")],
        "-" if end is None else end,
        0 if replica["isMaster"] else behind,
    )
