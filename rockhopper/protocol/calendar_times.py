"""Times that every calendar has: a producer's clock, or a wrong unit, makes others.

Python's and protobuf's years are 1 to 9999, in every time zone; readers of Parquet take what is
before 1900 for another calendar's.
"""

CALENDAR_MS_MIN = -2_208_816_000_000
CALENDAR_MS_MAX = 253_402_128_000_000


def in_calendar(time_ms: int) -> int:
    """*time_ms*, or the nearest that a calendar has."""
    return min(max(time_ms, CALENDAR_MS_MIN), CALENDAR_MS_MAX)
