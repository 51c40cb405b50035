"""Sending one message."""

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from string import hexdigits

from rockhopper.broker.gateways.console.views.messages import time_of
from rockhopper.broker.gateways.console.visit import (
    Moved,
    TemplatePage,
    Visit,
    WrongInput,
    format_error,
    parse_whole,
    queue_of,
    queue_text,
)
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import NoPermission
from rockhopper.client.admin.causes import find_nearest
from rockhopper.client.errors import ClientError, RouteNotFoundError
from rockhopper.client.producer import Producer
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.sending.tries import may_be_stored
from rockhopper.protocol.message import Message
from rockhopper.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic, topic_error

GROUP = "rockhopper_console"
TIMEOUT_S = 5.0
DELAY_MAX_S = 10**9
LOST = ". The message may be stored nevertheless: check the topic before you send it again."
MAKE_IT = "Correct the name, or choose below to create it."


async def show(visit: Visit) -> TemplatePage:
    """Show the form."""
    return await _form(visit, visit.query)


async def _form(visit: Visit, fields: Mapping[str, str], problem: str = "") -> TemplatePage:
    topic = fields.get("topic", "").strip()
    queues: list[str] = []
    is_new = False
    refusal = visit.refusal(Action.PUB, topic) if topic else ""
    if refusal:
        problem = problem or refusal
    elif topic:
        queues, is_new = await _queues(visit, topic)
        if is_new:
            problem = problem or await _not_there(visit, topic)
    values = {
        "fields": fields,
        "topic": topic,
        "queues": queues,
        "problem": problem,
        "is_new": is_new,
    }
    status = 403 if refusal else 400
    return TemplatePage(
        "send.html", values, status if problem and fields is not visit.query else 200
    )


async def _queues(visit: Visit, topic: str) -> tuple[list[str], bool]:
    """Return the names of the topic's writable queues, and whether there is no such topic."""
    try:
        route = await visit.admin.route(topic)
    except RouteNotFoundError:
        return [], True
    return [queue_text(queue) for queue in route.write_queues], False


async def send(visit: Visit, form: Mapping[str, str]) -> Moved | TemplatePage:
    """Send the message and show its page; on an error show the form with the input."""
    topic = form.get("topic", "").strip()
    try:
        if not topic:
            raise WrongInput("topic is missing")
        visit.check(Action.PUB, topic)
        await _check_topic(visit, topic, is_new=bool(form.get("new")))
        message = await asyncio.to_thread(_message, topic, form)
        queue = queue_of(form["queue"], topic) if form.get("queue") else None
        if queue is not None:
            # Raises an error if the broker is known not to answer.
            await visit.masters(queue.broker_name)
        receipt = await _send(visit, message, queue)
    except (ClientError, NoPermission, ValueError, WrongInput) as error:
        return await _form(
            visit, form, format_error(error) + (LOST if may_be_stored(error) else "")
        )
    return _page_after(visit, message, receipt)


async def _send(visit: Visit, message: Message, queue: MessageQueue | None) -> SendReceipt:
    producer = Producer(
        visit.name_services,
        group=GROUP,
        timeout_s=TIMEOUT_S,
        tls=visit.tls or False,
        credentials=visit.credentials,
    )
    producer.session.routes.leave_out(visit.admin.session.routes.left_out)
    async with producer:
        return await producer.send(message, queue=queue)


def _page_after(visit: Visit, message: Message, receipt: SendReceipt) -> Moved:
    """Return the page to show after the send: that of the message, if the user may read it."""
    topic = message.topic
    is_late = message.delay_s is not None or message.deliver_at_ms is not None
    said = (
        f"{receipt.message_id} will be delivered later." if is_late else "The message was stored."
    )
    if not visit.sees_topic(topic):
        return Moved("send", {"topic": topic}, said)
    if is_late or visit.refusal(Action.SUB, topic):
        return Moved("topic", {"name": topic}, said)
    place = {
        "topic": topic,
        "queue": queue_text(receipt.queue),
        "offset": str(receipt.queue_offset),
    }
    return Moved("message", place, said)


async def _check_topic(visit: Visit, topic: str, *, is_new: bool) -> None:
    """Raise WrongInput for a topic of the system, or one that may contain a typo."""
    if is_retry_topic(topic) or is_dlq_topic(topic) or is_system_topic(topic):
        raise WrongInput(
            f"{topic[:200]} is written by brokers only: send to a topic of your applications"
        )
    if not is_new and topic_error(topic) is None:
        try:
            await visit.admin.route(topic)
        except RouteNotFoundError:
            raise WrongInput(await _not_there(visit, topic)) from None


async def _not_there(visit: Visit, topic: str) -> str:
    names = list(filter(visit.sees_topic, await visit.admin.topics()))
    near = " or ".join(await asyncio.to_thread(find_nearest, topic, names))
    return f"There is no topic {topic[:200]}. {f'Is it {near}? ' if near else ''}{MAKE_IT}"


def _message(topic: str, form: Mapping[str, str]) -> Message:
    """Parse the form. Raises WrongInput, ValueError."""
    body = form.get("body", "").replace("\r\n", "\n")
    kind, when = form.get("form", "text"), form.get("when", "now")
    if kind not in ("text", "hex"):
        raise WrongInput(f"{kind[:60]!r} is not a body format: expected text or hex")
    if when not in ("now", "after", "at"):
        raise WrongInput(f"{when[:60]!r} is not a delivery: expected now, after or at")
    content = _from_hex(body) if kind == "hex" else body.encode("utf-8", "surrogatepass")
    later = form.get("later", "").strip()
    deliver_at: datetime | None = None
    delay_s: int | None = None
    if when == "at":
        time_ms = time_of(later)
        if time_ms <= time.time_ns() // 1_000_000:
            raise WrongInput(f"{later[:60]} is in the past: give a future time, or deliver it now")
        deliver_at = datetime.fromtimestamp(time_ms / 1000).astimezone()
    elif when == "after":
        delay_s = parse_whole(later, "number of seconds")
        if delay_s > DELAY_MAX_S:
            raise WrongInput(f"{later[:60]} seconds are more than brokers allow: {DELAY_MAX_S:,}")
    return Message(
        topic,
        content,
        tags=form.get("tags", "").strip() or None,
        keys=form.get("keys", "").split(),
        properties=_properties(form.get("properties", "")),
        delay_s=delay_s,
        deliver_at=deliver_at,
        sharding_key=form.get("sharding_key", "").strip() or None,
    )


def _from_hex(text: str) -> bytes:
    """Decode hexadecimal text. Raises WrongInput."""
    digits = "".join(text.split())
    if odd := next((each for each in digits if each not in hexdigits), None):
        raise WrongInput(f"the body is not hex: {odd!r} is not a digit from 0 to f")
    if len(digits) % 2:
        raise WrongInput(f"the body is not hex: it has an odd number of digits, {len(digits):,}")
    return bytes.fromhex(digits)


def _properties(text: str) -> dict[str, str]:
    """Parse ``name=value`` lines. Raises WrongInput."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise WrongInput(f"{line[:60]!r} is not a property: write name=value, one on each line")
        if name.strip() in found:
            raise WrongInput(f"the property {name.strip()[:60]!r} is given twice")
        found[name.strip()] = value.strip()
    return found
