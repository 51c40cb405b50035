"""BrokerClocks: estimates the time at brokers, so that one clock measures the age of messages.

The clocks of two hosts may differ by minutes. A heartbeat asks a Rockhopper broker for its time;
from then on this process's monotonic clock measures the progress. Because the answer takes time to
arrive, the estimate is never ahead of the broker's clock, so no message seems older than it is.
Other brokers do not report their time.
"""

import time
from collections.abc import Callable, Mapping

FIELD = "storeTime"
"""The field of the heartbeat and its answer: milliseconds since 1970, as in messages."""


class BrokerClocks:
    """The clocks of the brokers that one client sends heartbeats to."""

    def __init__(self, monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000) -> None:
        self._monotonic_ms = monotonic_ms
        self._ahead_ms: dict[str, float] = {}

    def heard(self, address: str, fields: Mapping[str, str] | None) -> None:
        """Read the broker's time from the answer to a heartbeat."""
        text = (fields or {}).get(FIELD, "")
        if text.isdecimal():
            self._ahead_ms[address] = int(text) - self._monotonic_ms()
        else:
            self._ahead_ms.pop(address, None)

    def now_ms(self, address: str | None) -> int | None:
        """Return the broker's time; None if it has not reported it."""
        ahead_ms = self._ahead_ms.get(address or "")
        return None if ahead_ms is None else int(ahead_ms + self._monotonic_ms())
