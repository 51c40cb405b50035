"""Offsets of queues as options and checkpoints write them: topic -> broker -> queue -> offset.

    {"orders": {"broker-a": {"0": 23, "1": -1}}}

In options, −1 is the end of a queue and −2 its beginning. The broker can be omitted if the topic is
on a single broker.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError

LATEST = -1
EARLIEST = -2

Offsets = dict[MessageQueue, int]
Document = dict[str, dict[str, dict[str, int]]]


def to_document(offsets: Mapping[MessageQueue, int]) -> Document:
    """Return the nested form with sorted keys: Spark compares offsets as text."""
    document: Document = {}
    for queue in sorted(offsets):
        brokers = document.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return document


def from_document(document: Mapping[str, Any]) -> Offsets:
    """Parse a document from ``to_document``."""
    return {
        MessageQueue(topic, broker, int(queue_id)): int(offset)
        for topic, brokers in document.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def parse_json(option: str, text: str) -> dict[str, Any]:
    """Parse the JSON object in an option. Raises PipelineError."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise PipelineError(
            f"the option {option} is not valid JSON ({error}): set it to one such as "
            '{"orders": {"broker-a": {"0": 23}}}'
        ) from None
    if not isinstance(value, dict):
        raise PipelineError(
            f"the option {option} is {text!r}: set it to an object such as "
            '{"orders": {"broker-a": {"0": 23}}}'
        )
    return value


def resolve_json(
    option: str, document: Mapping[str, Any], queues: Iterable[MessageQueue]
) -> Offsets:
    """Return the values of an option for *queues*, without queues that the option does not name.

    Raises:
        PipelineError: the option names a missing topic or queue, or is ambiguous.
    """
    by_topic: dict[str, dict[tuple[str, int], MessageQueue]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, {})[queue.broker_name, queue.queue_id] = queue
    found: Offsets = {}
    for topic, value in document.items():
        there = by_topic.get(topic)
        if there is None:
            raise PipelineError(
                f"the option {option} names the topic {topic!r}, which is not read: subscribe to "
                "it, or take it out"
            )
        for (broker, queue_id), offset in _flat(option, topic, value, there).items():
            if (broker, queue_id) not in there:
                known = ", ".join(f"{name}/{number}" for name, number in sorted(there)) or "none"
                raise PipelineError(
                    f"the option {option} names queue {queue_id} of {topic!r} on {broker!r}, which "
                    f"does not exist: the topic has {known}"
                )
            found[there[broker, queue_id]] = offset
    return found


def expand_times(document: Mapping[str, Any], queues: Iterable[MessageQueue]) -> dict[str, Any]:
    """Expand *document*: where it has one time for a topic or a broker, set it for each queue.

    Other values stay unchanged; ``resolve_json`` validates them.
    """
    by_topic: dict[str, dict[str, list[str]]] = {}
    for queue in queues:
        brokers = by_topic.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, []).append(str(queue.queue_id))

    def spread(value: object, numbers: Iterable[str]) -> object:
        return value if isinstance(value, dict) else dict.fromkeys(numbers, value)

    found: dict[str, Any] = {}
    for topic, value in document.items():
        brokers = by_topic.get(topic, {})
        if not isinstance(value, dict):
            value = dict.fromkeys(brokers, value)
        if value and all(name in brokers for name in value):
            value = {name: spread(time, brokers[name]) for name, time in value.items()}
        found[topic] = value
    return found


def _flat(
    option: str, topic: str, value: object, there: Mapping[tuple[str, int], MessageQueue]
) -> dict[tuple[str, int], int]:
    if not isinstance(value, dict):
        raise PipelineError(
            f"the option {option} says {value!r} for {topic!r}: set an object of offsets by queue"
        )
    if any(isinstance(inner, dict) for inner in value.values()):
        by_broker = value
    else:
        by_broker = {_only_broker(option, topic, value, there): value}
    result: dict[tuple[str, int], int] = {}
    for broker, offsets in by_broker.items():
        if not isinstance(offsets, dict):
            raise PipelineError(
                f"the option {option} mixes queues and brokers for {topic!r}: write {_form(option)}"
            )
        for queue_id, offset in offsets.items():
            if not str(queue_id).isdecimal() or not isinstance(offset, int) or offset < EARLIEST:
                raise PipelineError(
                    f"the option {option} says {offset!r} for queue {queue_id!r} of {topic!r}: "
                    f"{_value_rule(option)}"
                )
            result[broker, int(queue_id)] = offset
    return result


def _only_broker(
    option: str,
    topic: str,
    offsets: Mapping[Any, Any],
    there: Mapping[tuple[str, int], MessageQueue],
) -> str:
    """Return the one broker of the topic; blank if it has none."""
    brokers = sorted({broker for broker, _ in there})
    foreign = [name for name in offsets if not str(name).isdecimal() and name not in brokers]
    if foreign:
        raise PipelineError(
            f"the option {option} names the broker {foreign[0]!r} for {topic!r}, which is on "
            f"{', '.join(brokers) or 'none'}: correct it"
        )
    if len(brokers) > 1:
        raise PipelineError(
            f"the option {option} names no broker for {topic!r}, which is on "
            f"{', '.join(brokers)}: write {_form(option)}"
        )
    return next(iter(brokers), "")


def _is_of_times(option: str) -> bool:
    return option.endswith("ByTimestamp")


def _form(option: str) -> str:
    value = "ms" if _is_of_times(option) else "offset"
    return f"topic -> broker -> queue -> {value}"


def _value_rule(option: str) -> str:
    if _is_of_times(option):
        return "a time is a number, in milliseconds since 1970"
    return "an offset is a number from 0 on, -1 for the end or -2 for the beginning"
