"""What costs a peer nothing to send is counted: an allowance that fills up again over time.

resets       streams that were opened and given up, by either side (CVE-2023-44487, 2025-8671)
idle frames  those that move nothing: SETTINGS, PING, PRIORITY, unknown ones, empty DATA
"""

from rockhopper.protocol.http2.errors import ErrorCode, Http2Error


class Allowance:
    """So many at once, and so many a second for ever."""

    __slots__ = ("_left", "_most", "_per_second", "_seen_s", "_what")

    def __init__(self, what: str, *, most: int, per_second: int) -> None:
        self._what = what
        self._most = self._left = float(most)
        self._per_second = per_second
        self._seen_s: float | None = None

    def spend(self, now_s: float) -> None:
        """Count one more. Raises Http2Error when there were too many."""
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
        """Allow *count* more, for something that was of use; never more than at first."""
        self._left = min(self._left + count, self._most)
