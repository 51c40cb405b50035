"""Failed handshakes: logged when the reason is new, and listed by `ha status` while they continue.

A replica retries five times a second. The same reason from the same peer is one condition. It ends
when the peer is accepted, or has not been refused for a minute.
"""

from collections.abc import Callable

import structlog

log = structlog.get_logger("broker.ha")

FORGET_MS = 60_000
REFUSALS_MAX = 32
"""Anyone can connect, so beyond this number the oldest entry is dropped."""


class Refusals:
    """The failed handshakes of one replica, in both directions."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._seen_ms: dict[tuple[str, str, str], int] = {}
        """The time of the last occurrence, by event, peer and reason."""

    def note(self, event: str, peer: str, reason: str) -> None:
        """Record a failed handshake; log it if it is new."""
        self._forget_old()
        key = event, peer, reason
        if self._seen_ms.pop(key, None) is None:
            log.warning(event, peer=peer, reason=reason)
        while len(self._seen_ms) >= REFUSALS_MAX:
            del self._seen_ms[next(iter(self._seen_ms))]
        self._seen_ms[key] = self._now_ms()

    def clear(self, peer: str) -> None:
        """Remove the failures of a peer that has now been accepted."""
        for key in [each for each in self._seen_ms if each[1] == peer]:
            del self._seen_ms[key]

    @property
    def sentences(self) -> list[str]:
        """A description of each current failure."""
        self._forget_old()
        return [f"{event}: {peer}: {reason}" for event, peer, reason in self._seen_ms]

    def _forget_old(self) -> None:
        oldest_ms = self._now_ms() - FORGET_MS
        for key in [each for each, seen_ms in self._seen_ms.items() if seen_ms < oldest_ms]:
            del self._seen_ms[key]
