"""Limits frames that cost a peer nothing: each uses up an allowance that refills over time.

resets       streams that were opened and reset, by either side (CVE-2023-44487, 2025-8671)
idle frames  frames without effect: SETTINGS, PING, PRIORITY, unknown ones, empty DATA
"""

from rockhopper.protocol.http2.errors import ErrorCode, Http2Error


class Allowance:
    """An allowance (token bucket): `most` at once, then `per_second`."""

    __slots__ = ("_left", "_most", "_per_second", "_seen_s", "_what")

    def __init__(self, what: str, *, most: int, per_second: int) -> None:
        self._what = what
        self._most = self._left = float(most)
        self._per_second = per_second
        self._seen_s: float | None = None

    def spend(self, now_s: float) -> None:
        """Count one frame. Raises Http2Error if the allowance is used up."""
        if self._seen_s is None:
            self._seen_s = now_s
        if self._left < 1:
            passed_s = max(now_s - self._seen_s, 0.0)
            self._left = min(self._left + passed_s * self._per_second, self._most)
            self._seen_s = now_s
            if self._left < 1:
                raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"too many {self._what}")
        self._left -= 1

    def earn(self, count: int) -> None:
        """Add *count* for a useful frame, up to the initial allowance."""
        left = self._left
        if left < self._most:
            self._left = min(left + count, self._most)
