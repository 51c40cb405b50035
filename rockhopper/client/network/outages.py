"""What is said of brokers that are away: a line now and then, however many parts notice it."""

import logging
import time
from collections.abc import Callable

_AGAIN_S = 60.0


class Outages:
    """What one client has said lately."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._said_s: dict[str, float] = {}

    def warn(self, log: logging.Logger, key: str, text: str, *args: object) -> None:
        """Log a warning; at DEBUG if one of this key was logged within a minute.

        The key is the address, for those who would all say the same of it.
        """
        now_s = self._now_s()
        self._said_s = {each: at for each, at in self._said_s.items() if now_s - at < _AGAIN_S}
        is_news = self._said_s.setdefault(key, now_s) == now_s
        log.log(logging.WARNING if is_news else logging.DEBUG, text, *args, stacklevel=2)

    def over(self) -> None:
        """Something is there again: what goes away after that is said at once."""
        self._said_s.clear()
