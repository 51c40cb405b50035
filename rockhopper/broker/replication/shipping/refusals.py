"""Handshakes that fail: logged when a reason is new, and notes of `ha status` while they go on.

A replica tries again five times a second. The same reason at the same peer is one state, which is
over when the peer is taken, or has not been refused for a minute.
"""

from collections.abc import Callable

import structlog

log = structlog.get_logger("broker.ha")

FORGET_MS = 60_000
REFUSALS_MAX = 32
"""Anybody may connect: beyond these the oldest is forgotten."""


class Refusals:
    """Of one replica, in both directions."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._seen_ms: dict[tuple[str, str, str], int] = {}
        """By event, peer and reason: when it happened last."""

    def note(self, event: str, peer: str, reason: str) -> None:
        """Take note of a failed handshake; log it if that is news."""
        self._forget_old()
        key = event, peer, reason
        if self._seen_ms.pop(key, None) is None:
            log.warning(event, peer=peer, reason=reason)
        while len(self._seen_ms) >= REFUSALS_MAX:
            del self._seen_ms[next(iter(self._seen_ms))]
        self._seen_ms[key] = self._now_ms()

    def end(self, peer: str) -> None:
        """Forget what was wrong with a peer that was taken now."""
        for key in [each for each in self._seen_ms if each[1] == peer]:
            del self._seen_ms[key]

    @property
    def sentences(self) -> list[str]:
        """What is wrong now."""
        self._forget_old()
        return [f"{event}: {peer}: {reason}" for event, peer, reason in self._seen_ms]

    def _forget_old(self) -> None:
        oldest_ms = self._now_ms() - FORGET_MS
        for key in [each for each, seen_ms in self._seen_ms.items() if seen_ms < oldest_ms]:
            del self._seen_ms[key]
