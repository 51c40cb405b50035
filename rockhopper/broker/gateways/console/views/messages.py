"""Messages: browsing a topic, and one message with its body, properties and consumers."""

import asyncio
import re

from rockhopper.broker.gateways.console.bodies import compression, format_body, open_body
from rockhopper.broker.gateways.console.browsing import Browser, Listed, line, read_places
from rockhopper.broker.gateways.console.visit import (
    Moved,
    Raw,
    Result,
    TemplatePage,
    Visit,
    WrongInput,
    parse_whole,
    queue_of,
    queue_text,
)
from rockhopper.broker.users.access import Action
from rockhopper.client.admin.topic_stats import QueueFigures, TopicReader
from rockhopper.client.admin.tracks import find_due_ms, find_history
from rockhopper.client.consuming.pulling import PullResult
from rockhopper.client.errors import MessageNotFoundError
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.times import parse_time_ms

BY_KEY_MAX = 64
IS_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
"""Input that is taken for an id; anything else is searched for among the keys."""
WAYS = ("newest", "offset", "time", "key", "id")
_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


async def _find_by_id(visit: Visit, topic: str, by: str, wanted: str) -> Result | None:
    """Return the page of the message with the id *wanted*; None if no id is wanted.

    Without another way to search, input that looks like an id is first taken for one.
    """
    is_guess = by == "newest" and IS_ID.fullmatch(wanted)
    if not is_guess and not (by == "id" and wanted):
        return None
    try:
        return await _to_message(visit, await visit.admin.message(wanted, topic))
    except MessageNotFoundError:
        if not is_guess:
            raise
        return None


async def _list_by_key(visit: Visit, topic: str, key: str) -> Listed:
    found = await visit.admin.messages_by_key(topic, key, max_count=BY_KEY_MAX)
    left_out = f"The newest {BY_KEY_MAX} of them." if len(found) == BY_KEY_MAX else ""
    return Listed(await asyncio.to_thread(lambda: list(map(line, found))), "", left_out)


async def _search(
    visit: Visit, topic: str, queues: list[QueueFigures], by: str, wanted: str
) -> Listed:
    if by not in ("key", "id"):
        return await _from_queues(visit, queues, by)
    return await _list_by_key(visit, topic, wanted) if by == "key" and wanted else Listed([])


async def browse(visit: Visit) -> Result:
    """Show the messages of a topic: the newest, from an offset or time on, by key or by id."""
    topic = visit.get_needed("topic")
    visit.check(Action.SUB, topic)
    _, masters = await asyncio.gather(visit.admin.route(topic), visit.admin.masters())
    queues = await TopicReader(visit.admin, masters).queues(topic)
    by = visit.query.get("by", "newest")
    if by not in WAYS:
        raise WrongInput(f"messages can be searched by {', '.join(WAYS)}")
    wanted = visit.query.get("q", "").strip()
    is_guess = by == "newest" and bool(wanted)
    page = await _find_by_id(visit, topic, by, wanted)
    if page is not None:
        return page
    by = "key" if is_guess else by
    listed, problem = Listed([]), ""
    try:
        listed = await _search(visit, topic, queues, by, wanted)
    except WrongInput as error:
        problem = str(error)
    values = {
        "problem": problem,
        "topic": topic,
        "by": by,
        "wanted": wanted,
        "queues": [queue_text(each.queue) for each in queues],
        "listed": listed,
        "kept": sum(each.messages for each in queues),
    }
    return TemplatePage("messages.html", values, 400 if problem else 200)


async def _from_queues(visit: Visit, queues: list[QueueFigures], by: str) -> Listed:
    chosen = visit.query.get("queue", "")
    if chosen:
        queue = queue_of(chosen, visit.query["topic"])
        queues = [each for each in queues if each.queue == queue]
        if not queues:
            raise WrongInput(f"the topic has no queue {chosen[:100]}")
    browser = Browser(visit.puller(), queues)
    places = read_places(visit.query.get("at", ""), len(queues))
    if by == "newest":
        return await browser.back_from(places)
    if places is None and by == "offset":
        places = [parse_whole(visit.query.get("q") or "0", "offset")] * len(queues)
    if places is None:
        time_ms = time_of(visit.query.get("q", ""))
        offset_at = visit.admin.offsets.offset_at
        places = list(await asyncio.gather(*(offset_at(each.queue, time_ms) for each in queues)))
    return await browser.on_from(places)


def time_of(text: str) -> int:
    """Parse a form's time in this host's time zone, in ms. Raises WrongInput."""
    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise WrongInput(str(error)) from None


async def _to_message(visit: Visit, message: ReceivedMessage) -> Moved:
    """Redirect to a message's page; a message found by its id may belong to another topic."""
    visit.check(Action.SUB, message.topic)
    queue = queue_text(message.queue)
    return Moved(
        "message", {"topic": message.queue.topic, "queue": queue, "offset": message.queue_offset}
    )


async def _message(visit: Visit) -> tuple[ReceivedMessage, PullResult]:
    """Return the requested message, and the pull result with its queue's offsets."""
    topic = visit.get_needed("topic")
    visit.check(Action.SUB, topic)
    queue = queue_of(visit.get_needed("queue"), topic)
    offset = parse_whole(visit.get_needed("offset"), "offset")
    found = await visit.puller().pull(queue, offset, 1)
    message = next((each for each in found.messages if each.queue_offset == offset), None)
    if message is None:
        raise WrongInput(
            f"There is no message at {offset:,} of {queue}: its offsets are "
            f"{found.min_offset:,} to {found.max_offset - 1:,}."
            if found.max_offset > found.min_offset
            else f"There is no message at {offset:,} of {queue}, which is empty."
        )
    return message, found


async def show(visit: Visit) -> TemplatePage:
    """Show one message."""
    message, found = await _message(visit)
    body, went, due = await asyncio.gather(
        asyncio.to_thread(format_body, message.stored, visit.query.get("as", "")),
        find_history(visit.admin, message),
        find_due_ms(visit.admin, message),
    )
    values = {
        "message": message,
        "stored": message.stored,
        "queue": queue_text(message.queue),
        "has_previous": message.queue_offset > found.min_offset,
        "has_next": message.queue_offset + 1 < found.max_offset,
        "body": body,
        "tracks": [each for each in went.tracks if visit.sees_group(each.group)],
        "hidden": sum(not visit.sees_group(each.group) for each in went.tracks),
        "first_topic": went.topic,
        "due_ms": due,
    }
    return TemplatePage("message.html", values)


async def save(visit: Visit) -> Raw:
    """Return the body as a file."""
    message, _ = await _message(visit)
    body, problem = await asyncio.to_thread(open_body, message.stored)
    as_stored = f".{compression(message.stored)}" if problem else ""
    name = f"{message.queue.topic}-{message.queue_id}-{message.queue_offset}.bin{as_stored}"
    return Raw(body, _UNSAFE_IN_NAMES.sub("_", name))
