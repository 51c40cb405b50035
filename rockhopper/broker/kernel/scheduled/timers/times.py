"""Delivery times: the properties of a producer's request, and the form in a stored timed message.

A producer sets one property; the first existing one of these counts:

    TIMER_DELAY_SEC     seconds from now
    TIMER_DELAY_MS      milliseconds from now
    TIMER_DELIVER_MS    milliseconds since the epoch
    __STARTDELIVERTIME  the same, as clients of Alibaba's service write it

The stored message has TIMER_OUT_MS. RocketMQ divides time into ticks of its precision, writes the
start of the last tick that begins before the due time, and delivers at the end of that tick. Here a
tick is 1 ms long, so TIMER_OUT_MS is the due time less 1. RocketMQ's smallest precision is 100 ms,
so it writes only multiples of 100, and this broker writes none: if a due time would require one,
the message is due a millisecond later.

    due at 12,345 ms    TIMER_OUT_MS is 12,344
    due at 12,301 ms    12,300 is a multiple of 100: TIMER_OUT_MS is 12,301, so it is due at 12,302
"""

import re
from collections.abc import Mapping

from rockhopper.protocol.properties import (
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
)

PROPERTY_START_DELIVER_TIME = "__STARTDELIVERTIME"
REQUEST_PROPERTIES = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_START_DELIVER_TIME,
)
ROCKETMQ_PRECISION_MS_MIN = 100

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_FROM_NOW_MS = {PROPERTY_TIMER_DELAY_SEC: 1000, PROPERTY_TIMER_DELAY_MS: 1}


def get_requested_time_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Return when a producer wants its message delivered; None if it sets no time.

    Raises:
        ValueError: the property is not a number.
    """
    for name in REQUEST_PROPERTIES:
        text = properties.get(name)
        if text is None:
            continue
        if _NUMBER.fullmatch(text) is None:
            raise ValueError(f"the property {name} is {text[:50]!r}, not a number")
        unit_ms = _FROM_NOW_MS.get(name)
        return int(text) if unit_ms is None else now_ms + int(text) * unit_ms
    return None


def compute_out_ms(time_ms: int) -> int:
    """Return the TIMER_OUT_MS of a message that is due at *time_ms*, or a millisecond later."""
    before_ms = time_ms - 1
    return before_ms if before_ms % ROCKETMQ_PRECISION_MS_MIN else time_ms


def due_ms(properties: Mapping[str, str], store_time_ms: int, precision_ms: int) -> int | None:
    """Return when a stored timed message may be delivered; None if it contains no time.

    *precision_ms* is that of a RocketMQ broker that may have stored it. Its TIMER_OUT_MS is no more
    precise than that, but the producer's own property often is.
    """
    text = properties.get(PROPERTY_TIMER_OUT_MS, "")
    if _NUMBER.fullmatch(text) is None:
        return None
    before_ms = int(text)
    if before_ms % ROCKETMQ_PRECISION_MS_MIN:
        return before_ms + 1
    try:
        asked_ms = get_requested_time_ms(properties, store_time_ms)
    except ValueError:
        asked_ms = None
    latest_ms = before_ms + precision_ms
    if asked_ms is not None and before_ms < asked_ms <= latest_ms:
        return asked_ms
    return latest_ms
