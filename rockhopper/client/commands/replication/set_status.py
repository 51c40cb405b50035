"""`rockhopper ha status` of a replica set: its leader, its in-sync replicas, its alarms."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

from rockhopper.client.commands.output import print_table, write_line
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin

TIMEOUT_S = 3.0
_LEADING = "leading"
_NAMES = "alarmNames"
COLUMNS = ("REPLICA", "ADDRESS", "ROLE", "IN SYNC", "CLEAN", "LOG END", "BEHIND")


async def read_set_status(admin: "Admin", address: str) -> dict[str, Any]:
    """Return the replica set of the broker at *address*, as its master sees it.

    All its replicas are queried: each knows its own log and its own alarms, and only the master
    knows the progress of the others. ``answers`` shows which replicas answered; alarms and notes
    begin with their owner. If another process is announced under a replica's id, the waiting
    process is not that replica: only its alarms and notes are shown.

    Raises:
        RequestRefusedError: the broker is in no replica set, or is starting.
        ClientError: it cannot be reached.
    """
    first = await _ask(admin, address)
    found = [(address, first), *await _ask_others(admin, first)]
    told: dict[int, dict[str, Any]] = {}
    owners: dict[str, dict[str, Any]] = {}
    for place, answer in found:
        if _holds_id(answer):
            # Several replicas may share an address, so another one may have answered.
            told.setdefault(answer["id"], answer)
            owners.setdefault(f"replica {answer['id']}", told[answer["id"]])
        else:
            owners.setdefault(f"replica {answer['id']} (a second process, at {place})", answer)
    newest = max(told.values(), key=lambda each: each["epoch"], default=first)
    status = told.get(newest["masterId"], newest)
    place = next(place for place, answer in found if answer is status)
    shown = {key: status[key] for key in status if key != _NAMES}
    shown |= _collect_texts(owners) | {"leaderId": _find_leader_id(status, told), "asked": place}
    return shown | {"replicas": [_add_answer(each, shown, told) for each in status["replicas"]]}


async def _ask_others(admin: "Admin", first: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the addresses and answers of the other replicas that answer."""
    addresses = [
        each.get("ownAddress") or each["address"]
        for each in first["replicas"]
        if each["address"] and not (each["id"] == first["id"] and _holds_id(first))
    ]
    answers = await asyncio.gather(
        *(_ask(admin, each) for each in addresses), return_exceptions=True
    )
    found: list[tuple[str, dict[str, Any]]] = []
    for address, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, dict):
            found.append((address, answer))
        elif not isinstance(answer, ClientError):
            raise answer
    return found


def _holds_id(answer: dict[str, Any]) -> bool:
    return bool(answer.get("holdsId", True))  # a broker of an earlier release does not report it


def _collect_texts(owners: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return the alarms with their names, and the notes, of all that answered."""
    alarms, notes = [], []
    for owner, answer in sorted(owners.items()):
        texts = answer.get("alarms", ())
        # A broker of an earlier release does not name its alarms.
        names = answer.get(_NAMES, [""] * len(texts))
        alarms += [
            f"{owner}: {name}: {text}" if name else f"{owner}: {text}"
            for name, text in zip(names, texts, strict=True)
        ]
        notes += [f"{owner}: {text}" for text in answer.get("notes", ())]
    return {"alarms": alarms, "notes": notes}


def _find_leader_id(status: dict[str, Any], told: dict[int, dict[str, Any]]) -> int:
    """Return the leader by the newest state and by its own report; 0: none."""
    leader = int(status.get("leaderId", status["masterId"]))
    return leader if told.get(leader, {}).get("role", _LEADING) == _LEADING else 0


def _add_answer(
    replica: dict[str, Any], status: dict[str, Any], told: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    answer = told.get(replica["id"])
    is_master = replica["isMaster"] and replica["id"] == status["leaderId"]
    known = replica | {"isMaster": is_master, "answers": answer is not None}
    if answer is None:
        return known | {"role": None, "alarms": []}
    own = {"role": answer.get("role"), "logEnd": answer["logEnd"], "alarms": answer.get(_NAMES, [])}
    return known | own | {"isRunning": True}


async def _ask(admin: "Admin", address: str) -> dict[str, Any]:
    answer = await admin.request(address, RequestCode.GET_REPLICA_SET, timeout_s=TIMEOUT_S)
    return dict(json.loads(answer.body))


def show(status: dict[str, Any]) -> None:
    """Print the status for people."""
    in_sync = sum(each["isInSync"] for each in status["replicas"])
    write_line(
        f"epoch {status['epoch']}: {_leader(status)}; {in_sync} of {len(status['replicas'])} in "
        f"sync, at least {status['minInSyncReplicas']} required (reported by {status['asked']})"
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
    elected, leader = status["masterId"], status["leaderId"]
    if leader:
        return f"replica {leader} leads"
    return f"no replica leads, replica {elected} led last" if elected else "no replica leads"


def _row(replica: dict[str, Any], status: dict[str, Any]) -> tuple[object, ...]:
    held, end = replica.get("heldOffset"), replica.get("logEnd")
    behind = "-" if held is None else max(status["logEnd"] - held, 0)
    return (
        replica["id"],
        replica.get("ownAddress") or replica["address"] or "-",
        _role(replica),
        "yes" if replica["isInSync"] else "no",
        {True: "yes", False: "no", None: "-"}[replica.get("isClean")],
        "-" if end is None else end,
        0 if replica["isMaster"] else behind,
    )


def _role(replica: dict[str, Any]) -> str:
    if not replica["answers"]:
        return "no answer" if replica["isRunning"] else "away"
    if replica["isMaster"]:
        return "master"
    return replica["role"] if replica["role"] in ("joining", "candidate") else "follower"
