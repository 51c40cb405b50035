"""Messages that wait: delay levels, timers, and open transactions."""

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple

from rockhopper.broker.gateways.console.browsing import MessageLine, line
from rockhopper.broker.gateways.console.views.overview import BrokerState, states
from rockhopper.broker.gateways.console.visit import TemplatePage, Visit, if_allowed
from rockhopper.broker.users.access import Action
from rockhopper.client.admin.message_forms import find_timer_due_ms
from rockhopper.client.admin.topic_stats import TopicReader
from rockhopper.client.consuming.pulling import GroupPuller
from rockhopper.client.errors import ClientError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
)
from rockhopper.protocol.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    parse_whole_number,
)
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS, delays_ms

READ_MAX = 1000
SHOWN_MAX = 50
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
_LEVEL_KEY = "scheduleMessageOffset_"


class DelayLevel(NamedTuple):
    """The messages that wait in a delay level of a broker."""

    broker: str
    level: int
    delay_s: float
    waiting: int


class ScheduledMessage(NamedTuple):
    """A message with a delivery time."""

    line: MessageLine
    topic: str
    due_ms: int


class Half(NamedTuple):
    """A half message of an open transaction."""

    line: MessageLine
    topic: str
    group: str
    checks: int


async def show(visit: Visit) -> TemplatePage:
    """Show everything that the visitor may see, on all brokers."""
    found = await states(visit)
    masters = [each for each in found if each.broker.is_master and not each.problem]
    reader = TopicReader(visit.admin, [each.broker for each in masters])
    puller = visit.puller()
    waiting, halves, levels = await asyncio.gather(
        if_allowed(_timers(visit, reader, puller)),
        if_allowed(_halves(visit, reader, puller)),
        if_allowed(_levels(visit, masters)),
    )
    values = {
        "levels": levels,
        "timers": waiting and sorted(waiting, key=lambda each: each.due_ms)[:SHOWN_MAX],
        "timer_count": len(waiting or ()),
        "halves": halves and halves[:SHOWN_MAX],
        "half_count": len(halves or ()),
        "read_max": READ_MAX,
        "schedule_topic": SCHEDULE_TOPIC,
        "timer_topic": TIMER_TOPIC,
        "half_topic": TRANSACTION_HALF_TOPIC,
    }
    return TemplatePage("later.html", values)


async def _levels(visit: Visit, masters: Iterable[BrokerState]) -> list[DelayLevel]:
    visit.check(Action.SUB, SCHEDULE_TOPIC)
    return [level for each in masters for level in await _levels_of(visit, each)]


async def _levels_of(visit: Visit, state: BrokerState) -> list[DelayLevel]:
    marked = {
        int(key.removeprefix(_LEVEL_KEY)): value
        for key, value in state.facts.items()
        if key.startswith(_LEVEL_KEY) and key.removeprefix(_LEVEL_KEY).isdigit()
    }
    if not marked:
        return []
    settings = await visit.admin.broker_config(state.broker.address)
    try:
        delays = delays_ms(settings.get("messageDelayLevel", DEFAULT_DELAY_LEVELS))
    except ValueError:
        delays = ()
    found = []
    for level, value in sorted(marked.items()):
        delivered, _, end = value.partition(",")
        left = parse_whole_number(end) - parse_whole_number(delivered)
        if left > 0:
            delay_s = delays[level - 1] / 1000 if level <= len(delays) else 0
            found.append(DelayLevel(state.broker.name, level, delay_s, left))
    return found


async def _timers(visit: Visit, reader: TopicReader, puller: GroupPuller) -> list[ScheduledMessage]:
    """Return the timed messages that are not due yet, from the last ones accepted."""
    visit.check(Action.SUB, TIMER_TOPIC)
    now_ms = time.time_ns() // 1_000_000
    found = []
    for each in await reader.queues(TIMER_TOPIC):
        start = max(each.min_offset, each.max_offset - READ_MAX)
        for message in await _read(puller, each.queue, start, each.max_offset):
            due_ms = find_timer_due_ms(message)
            if due_ms is not None and due_ms > now_ms:
                topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
                found.append(ScheduledMessage(line(message), topic, due_ms))
    return found


async def _halves(visit: Visit, reader: TopicReader, puller: GroupPuller) -> list[Half]:
    """Return the half messages of open transactions.

    These lie behind the committed offset, and have not ended.
    """
    visit.check(Action.SUB, TRANSACTION_HALF_TOPIC)
    found = []
    ops = {each.queue.broker_name: each for each in await reader.queues(TRANSACTION_OP_HALF_TOPIC)}
    for each in await reader.queues(TRANSACTION_HALF_TOPIC):
        committed = await visit.admin.offsets.committed(TRANSACTION_GROUP, each.queue)
        start = max(each.min_offset, committed or 0)
        halves = await _read(puller, each.queue, start, each.max_offset)
        ended: set[int] = set()
        op = ops.get(each.queue.broker_name)
        if op is not None and halves:
            begin = max(op.min_offset, op.max_offset - READ_MAX)
            for message in await _read(puller, op.queue, begin, op.max_offset):
                ended.update(_offsets(message.body))
        found += [_half(message) for message in halves if message.queue_offset not in ended]
    return found


def _half(message: ReceivedMessage) -> Half:
    properties = message.properties
    return Half(
        line(message),
        properties.get(PROPERTY_REAL_TOPIC, ""),
        properties.get(PROPERTY_PRODUCER_GROUP, ""),
        max(parse_whole_number(properties.get(PROPERTY_TRANSACTION_CHECK_TIMES)), 0),
    )


def _offsets(body: bytes) -> Iterable[int]:
    """Return the offsets of the half messages that an op message ends."""
    parts = body.decode("ascii", "replace").split(",")
    return [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 20]


async def _read(
    puller: GroupPuller, queue: MessageQueue, start: int, end: int
) -> list[ReceivedMessage]:
    """Return at most ``READ_MAX`` messages; none if the queue cannot be read."""
    found: list[ReceivedMessage] = []
    while start < end and len(found) < READ_MAX:
        try:
            result = await puller.pull(queue, start, min(end - start, 64))
        except ClientError:
            return found
        if result.next_offset <= start:
            return found
        found += result.messages
        start = result.next_offset
    return found[:READ_MAX]
