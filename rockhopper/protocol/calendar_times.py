"""The range of times that every calendar supports.

A producer with a wrong clock or unit can send times outside it. Python's and protobuf's years are 1
to 9999, in every time zone. Readers of Parquet assume another calendar for times before 1900.
"""

CALENDAR_MS_MIN = -2_208_816_000_000
CALENDAR_MS_MAX = 253_402_128_000_000


def clamp_to_calendar(time_ms: int) -> int:
    """Return *time_ms*, limited to the supported range."""
    return min(max(time_ms, CALENDAR_MS_MIN), CALENDAR_MS_MAX)
