"""Limits the log lines about unreachable brokers, however many parts of a client notice them."""

import logging
import time
from collections.abc import Callable

_AGAIN_S = 60.0


class Outages:
    """The warnings that one client has logged recently."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._said_s: dict[str, float] = {}

    def warn(self, log: logging.Logger, key: str, text: str, *args: object) -> None:
        """Log a warning; at DEBUG if one with this key was logged within a minute.

        The key is usually the broker's address, which all parts share.
        """
        now_s = self._now_s()
        self._said_s = {each: at for each, at in self._said_s.items() if now_s - at < _AGAIN_S}
        is_news = self._said_s.setdefault(key, now_s) == now_s
        log.log(logging.WARNING if is_news else logging.DEBUG, text, *args, stacklevel=2)

    def over(self) -> None:
        """Forget the recent warnings, so that the next outage is logged at once."""
        self._said_s.clear()
