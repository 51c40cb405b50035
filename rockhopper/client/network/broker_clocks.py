"""BrokerClocks: what time it is at brokers, so that the age of a message is told by one clock.

The clocks of two hosts may differ by minutes. A heartbeat asks a Rockhopper for its time; from then
on this process's monotonic clock counts. The answer took a while, so a broker's time is never
told too late, and no message older than it is. Other brokers do not say.
"""

import time
from collections.abc import Callable, Mapping

FIELD = "storeTime"
"""Of a heartbeat that asks, and of the answer: milliseconds since 1970, as in messages."""


class BrokerClocks:
    """The times of the brokers that one client sends heartbeats to."""

    def __init__(self, monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000) -> None:
        self._monotonic_ms = monotonic_ms
        self._ahead_ms: dict[str, float] = {}

    def heard(self, address: str, fields: Mapping[str, str] | None) -> None:
        """Note the answer to a heartbeat."""
        text = (fields or {}).get(FIELD, "")
        if text.isdecimal():
            self._ahead_ms[address] = int(text) - self._monotonic_ms()
        else:
            self._ahead_ms.pop(address, None)

    def now_ms(self, address: str | None) -> int | None:
        """The time there, None of a broker that has not said it."""
        ahead_ms = self._ahead_ms.get(address or "")
        return None if ahead_ms is None else int(ahead_ms + self._monotonic_ms())
