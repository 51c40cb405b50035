"""`rockhopper trace`: where a message went, from trace records and the groups' offsets."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rockhopper.client.commands.output import (
    format_time,
    message_json,
    print_table,
    write_json,
    write_line,
)
from rockhopper.client.commands.parameters import TOPIC
from rockhopper.client.commands.running import choose_nameserver, nameserver_option, run
from rockhopper.client.commands.shell.reachable_brokers import list_reachable
from rockhopper.client.printable import make_printable
from rockhopper.protocol.names import TRACE_TOPIC, TRANSACTION_HALF_TOPIC

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.admin.tracks import MessageHistory, Track

_RECORDS_MAX = 64
_LATE_MS = 60_000
_FIELD, _RECORD = "\x01", "\x02"


@dataclass(frozen=True)
class TraceEvent:
    """An event in a message's history, recorded by a client."""

    time_ms: int
    what: str
    group: str
    client: str
    result: str


@click.command()
@click.argument("message_id", metavar="ID")
@click.option("--topic", "-t", type=TOPIC, help="Search only this topic: faster with many topics.")
@click.option(
    "--trace-topic", type=TOPIC, default=TRACE_TOPIC, help="The topic with the clients' traces."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@nameserver_option
def trace(message_id: str, topic: str | None, trace_topic: str, as_json: bool) -> None:
    """Show where the message with this ID went.

    For each group that reads the topic: whether it has passed the message, has not reached it,
    retries it, or gave it up. Clients with trace=True also recorded when they sent and handled it.
    """
    run(_trace(message_id, topic, trace_topic, as_json, choose_nameserver()))


async def _trace(
    message_id: str, topic: str | None, trace_topic: str, as_json: bool, names: str | None
) -> None:
    from rockhopper.client.admin.tracks import find_history

    async with list_reachable(names) as admin:
        found = await admin.message(message_id, topic)
        events, went = await asyncio.gather(
            _read_events(admin, found.message_id, trace_topic), find_history(admin, found)
        )
    rows = [_row(each) for each in went.tracks]
    if as_json:
        write_json(
            {
                "topic": went.topic,
                "due": went.due_ms,
                "message": message_json(went.message),
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
                    {"group": group, "state": state, "detail": detail}
                    for group, state, detail in rows
                ],
            }
        )
        return
    write_line(make_printable(went.topic))
    for line in _list_places(went):
        write_line(make_printable(line))
    if events:
        write_line("")
        told = [(format_time(e.time_ms), e.what, e.group, e.client, e.result) for e in events]
        print_table(("TIME", "EVENT", "GROUP", "CLIENT", "RESULT"), told, ends_in_text=True)
    write_line("")
    if rows:
        print_table(("GROUP", "STATE", "DETAIL"), rows, ends_in_text=True)
    else:
        write_line("no group reads this topic")


def _list_places(went: "MessageHistory") -> list[str]:
    from rockhopper.client.admin.message_forms import WAITING_TOPICS, find_target_topic

    message, queue = went.message, went.message.queue
    place = f"{queue.broker_name}:{queue.queue_id} offset {message.queue_offset:,}"
    place += f", stored {format_time(message.store_time_ms)}"
    if queue.topic == went.topic:
        return [place]
    if queue.topic == TRANSACTION_HALF_TOPIC:
        return ["not committed by its producer; waits in", f"{queue.topic} {place}"]
    if queue.topic not in WAITING_TOPICS or find_target_topic(message) != went.topic:
        return ["no longer stored as it was sent; this is a copy:", f"{queue.topic} {place}"]
    comes = "comes later"
    if went.due_ms is not None:
        due = format_time(went.due_ms)
        is_late = went.due_ms + _LATE_MS < time.time() * 1000
        comes = f"was due {due}: recalled, or its topic was deleted" if is_late else ""
        comes = comes or f"due {due}; until then it waits in"
    return [comes, f"{queue.topic} {place}"]


def _row(track: "Track") -> tuple[str, str, str]:
    from rockhopper.client.admin.tracks import TrackOutcome

    words = {
        TrackOutcome.CONSUMED: "passed",
        TrackOutcome.RETRIED: "passed, retried",
        TrackOutcome.WAITING: "waits",
        TrackOutcome.OFFLINE: "waits",
    }
    parts = [track.detail] if track.detail else []
    if track.time_ms is not None:
        verb = "given up" if track.outcome is TrackOutcome.DEAD else "comes"
        parts.insert(0, f"{verb} {format_time(track.time_ms)}")
    return track.group, words.get(track.outcome, track.outcome.value), "; ".join(parts) or "-"


async def _read_events(admin: "Admin", message_id: str, trace_topic: str) -> list[TraceEvent]:
    from rockhopper.client.errors import RouteNotFoundError

    try:
        found = await admin.messages_by_key(trace_topic, message_id, max_count=_RECORDS_MAX)
    except RouteNotFoundError:
        return []  # no client traces here
    texts = (each.body.decode(errors="replace") for each in found)
    events = {event for text in texts for event in parse_events(text, message_id)}
    return sorted(events, key=lambda each: (each.time_ms, each.what))


def parse_events(text: str, message_id: str) -> Iterator[TraceEvent]:
    """Yield the events of a message in the records of *text*; invalid records are skipped."""
    for record in text.split(_RECORD):
        fields = record.split(_FIELD)
        try:
            if message_id in fields:
                yield from _parse_event(*fields)
        except (ValueError, IndexError, TypeError):
            continue


def _parse_event(kind: str, *fields: str) -> Iterator[TraceEvent]:
    """Yield the event of one record; client/sending/trace.py lists the fields."""
    if kind == "Pub":
        result = f"at {fields[7]} in {fields[9]} ms"
        if "true" not in fields[11:]:
            result = "FAILED"
        yield TraceEvent(int(fields[0]), "sent", fields[2], fields[-1], result)
    elif kind == "SubBefore":
        again = "" if fields[5] == "0" else f"redelivered, {fields[5]} before"
        yield TraceEvent(int(fields[0]), "delivered", fields[2], fields[7], again)
    elif kind == "SubAfter":
        result = "ok" if fields[3] == "true" else "FAILED"
        yield TraceEvent(int(fields[6]), "handled", fields[7], "", f"{result} in {fields[2]} ms")
    elif kind == "EndTransaction":
        yield TraceEvent(int(fields[0]), "transaction", fields[2], "", fields[10])
    elif kind == "Recall":
        yield TraceEvent(int(fields[0]), "recalled", fields[2], "", "")
