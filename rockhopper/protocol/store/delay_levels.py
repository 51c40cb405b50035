"""Parses the delays of delay levels: RocketMQ's setting messageDelayLevel."""

import re

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,9})([smhd])")


def delays_ms(text: str) -> tuple[int, ...]:
    """Return the delays of the levels from 1 on.

    Raises:
        ValueError: *text* is not a list such as ``1s 5m 2h``; the message explains it.
    """
    delays = []
    for part in text.split():
        match = _LEVEL.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a delay: write a number and one of s, m, h, d")
        delays.append(int(match[1]) * _UNIT_MS[match[2]])
    if not delays:
        raise ValueError("at least one delay is needed")
    return tuple(delays)
