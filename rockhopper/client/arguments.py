"""Checks arguments of applications, with errors that name the argument."""

import math
from numbers import Integral

from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.message import Message


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise TypeError unless `value` is a whole number, ValueError if it is below `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}: it must be a whole number")
    if value < least:
        raise ValueError(f"{name} is {value}: it must be at least {least}")


def check_seconds(
    name: str, value: object, *, may_be_zero: bool = False, is_finite: bool = False
) -> None:
    """Raise TypeError unless `value` is a number, ValueError if it is too small or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: it must be a number of seconds")
    if not (value >= 0 if may_be_zero else value > 0):
        bound = "0 or above" if may_be_zero else "above 0"
        raise ValueError(f"{name} is {value} s: it must be {bound}")
    if is_finite and value == math.inf:
        raise ValueError(f"{name} is {value} s: it must be finite")


def check_queue(queue: object) -> None:
    """Raise TypeError unless `queue` is a MessageQueue with a number."""
    if not isinstance(queue, MessageQueue) or not isinstance(queue.queue_id, Integral):
        raise TypeError(
            f"queue is {queue!r}: it must be a MessageQueue, as from `await client.queues(topic)`"
        )


def check_send_options(queue: object, timeout_s: object) -> None:
    """Raise TypeError, ValueError for a wrong `queue` or `timeout_s` of a send."""
    if isinstance(queue, MessageQueue):
        check_queue(queue)
    elif queue is not None and (isinstance(queue, bool) or not isinstance(queue, Integral)):
        raise TypeError(f"queue is {queue!r}: it must be a queue's number or a MessageQueue")
    if timeout_s is not None:
        check_seconds("timeout_s", timeout_s, may_be_zero=True)


def check_message(message: object) -> None:
    """Raise TypeError unless `message` is a Message."""
    if not isinstance(message, Message):
        raise TypeError(
            f"pass a Message, not {type(message).__name__}: Message(topic, body) creates one"
        )
