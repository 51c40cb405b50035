"""`rockhopper trace`: where a message went, by trace records and by how far groups have come."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rockhopper.client.commands.output import (
    message_json,
    print_table,
    time_text,
    write_json,
    write_line,
)
from rockhopper.client.commands.parameters import TOPIC
from rockhopper.client.commands.running import nameserver, nameserver_option, run
from rockhopper.client.printable import printable
from rockhopper.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.received import ReceivedMessage

_RECORDS_MAX = 64
_FIELD, _RECORD = "\x01", "\x02"


@dataclass(frozen=True)
class Event:
    """What a client has told of a message."""

    time_ms: int
    what: str
    group: str
    client: str
    result: str


@dataclass(frozen=True)
class Track:
    """How far a group is with a message."""

    group: str
    state: str
    detail: str


@click.command()
@click.argument("message_id", metavar="ID")
@click.option("--topic", "-t", type=TOPIC, help="Look in this topic only: quicker where many are.")
@click.option("--trace-topic", type=TOPIC, default=TRACE_TOPIC, help="Where clients tell traces.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@nameserver_option
def trace(message_id: str, topic: str | None, trace_topic: str, as_json: bool) -> None:
    """Show where the message with this ID went.

    Each group that reads its topic has passed it, waits in front of it, retries it, or gave it up.
    Clients that trace (trace=True) have told besides when they sent and handled it.
    """
    run(_trace(message_id, topic, trace_topic, as_json, nameserver()))


async def _trace(
    message_id: str, topic: str | None, trace_topic: str, as_json: bool, names: str | None
) -> None:
    from rockhopper.client.admin.admin import Admin

    async with Admin(names) as admin:
        message = await admin.message(message_id, topic)
        events, tracks = await asyncio.gather(
            _events(admin, message.message_id, trace_topic), _tracks(admin, message)
        )
    if as_json:
        write_json(
            {
                "message": message_json(message),
                "events": [
                    {
                        "time": each.time_ms,
                        "event": each.what,
                        "group": each.group,
                        "client": each.client,
                        "result": each.result,
                    }
                    for each in events
                ],
                "groups": [
                    {"group": each.group, "state": each.state, "detail": each.detail}
                    for each in tracks
                ],
            }
        )
        return
    place = f"{message.queue.broker_name}:{message.queue.queue_id} offset {message.queue_offset:,}"
    write_line(printable(message.topic))
    write_line(f"{place}, stored {time_text(message.store_time_ms)}")
    if events:
        write_line("")
        rows = [(time_text(e.time_ms), e.what, e.group, e.client, e.result) for e in events]
        print_table(("TIME", "EVENT", "GROUP", "CLIENT", "RESULT"), rows)
    write_line("")
    if tracks:
        print_table(("GROUP", "STATE", "DETAIL"), [(e.group, e.state, e.detail) for e in tracks])
    else:
        write_line("no group reads this topic")


async def _events(admin: "Admin", message_id: str, trace_topic: str) -> list[Event]:
    from rockhopper.client.errors import RouteNotFoundError

    try:
        found = await admin.messages_by_key(trace_topic, message_id, max_count=_RECORDS_MAX)
    except RouteNotFoundError:
        return []  # nobody traces here
    texts = (each.body.decode(errors="replace") for each in found)
    events = {event for text in texts for event in events_of(text, message_id)}
    return sorted(events, key=lambda each: (each.time_ms, each.what))


def events_of(text: str, message_id: str) -> Iterator[Event]:
    """Yield what the records in *text* tell of a message; what cannot be read is left out."""
    for record in text.split(_RECORD):
        fields = record.split(_FIELD)
        try:
            if message_id in fields:
                yield from _event(*fields)
        except (ValueError, IndexError, TypeError):
            continue


def _event(kind: str, *fields: str) -> Iterator[Event]:
    """The order of the fields is told in client/sending/trace.py."""
    if kind == "Pub":
        result = f"at {fields[7]} in {fields[9]} ms"
        if "true" not in fields[11:]:
            result = "FAILED"
        yield Event(int(fields[0]), "sent", fields[2], fields[-1], result)
    elif kind == "SubBefore":
        again = "" if fields[5] == "0" else f"redelivered, {fields[5]} before"
        yield Event(int(fields[0]), "delivered", fields[2], fields[7], again)
    elif kind == "SubAfter":
        result = "ok" if fields[3] == "true" else "FAILED"
        yield Event(int(fields[6]), "handled", fields[7], "", f"{result} in {fields[2]} ms")
    elif kind == "EndTransaction":
        yield Event(int(fields[0]), "transaction", fields[2], "", fields[10])
    elif kind == "Recall":
        yield Event(int(fields[0]), "recalled", fields[2], "", "")


async def _tracks(admin: "Admin", message: "ReceivedMessage") -> list[Track]:
    figures = await admin.figures.read()
    groups = next((each.groups for each in figures.topics if each.name == message.topic), [])
    return list(await asyncio.gather(*(_track(admin, group, message) for group in groups)))


async def _track(admin: "Admin", group: str, message: "ReceivedMessage") -> Track:
    from rockhopper.protocol.names import dlq_topic, retry_topic

    if (dead := await _copy(admin, message.message_id, dlq_topic(group))) is not None:
        return Track(group, "dead letter", f"given up {time_text(dead.store_time_ms)}")
    retried = await _copy(admin, message.message_id, retry_topic(group))
    lags = await admin.groups.lag(group)
    if retried is not None:
        behind = [each for each in lags if each.queue == retried.queue]
        waits = not behind or behind[0].consumer_offset <= retried.queue_offset
        state = "waits for a retry" if waits else "passed, retried"
        return Track(group, state, f"retry {retried.reconsume_times:,}")
    for each in lags:
        if each.queue == message.queue:
            before = message.queue_offset - each.consumer_offset
            if before >= 0:
                return Track(group, "waits", f"{before:,} in front of it")
            return Track(
                group, "passed", f"{-before - 1:,} more since then" if before < -1 else "-"
            )
    return Track(group, "unknown", "it has committed nothing for this queue")


async def _copy(admin: "Admin", message_id: str, topic: str) -> "ReceivedMessage | None":
    from rockhopper.client.errors import MessageNotFoundError, RouteNotFoundError

    try:
        found = await admin.message(message_id, topic)
    except (MessageNotFoundError, RouteNotFoundError):
        return None
    return found if found.topic == topic else None
