"""Parses points in time that people type, for every command, page and option.

    2026-11-29            the day, from its midnight on
    20261129              the same day
    2026-11-29T12:00      local time, unless it has a zone (+01:00, Z)
    1796040000000         milliseconds since 1970, 13 digits: the years 2001 to 2286

A number of another length is rejected: 8 digits could be a day or a time in 1970, 10 digits are
seconds. Numbers with fewer than 8 digits are accepted as milliseconds, because they cannot be a
day.
"""

import re
from datetime import datetime, tzinfo

DIGITS_OF_DAY = 8
DIGITS_OF_MS = 13
_BASIC_DAY = re.compile(r"\d{8}")


def parse_time_ms(text: str, zone: tzinfo | None = None) -> int:
    """Return milliseconds since 1970; *zone*, by default the host's, applies to times without one.

    Raises:
        ValueError: *text* is not a time; the message shows the formats.
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) != DIGITS_OF_DAY:
        return parse_ms(text)
    try:
        if _BASIC_DAY.fullmatch(text):
            text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text[:60]!r} is not a time: write 2030-05-01T12:00, with or without a zone, or "
            "milliseconds since 1970 (13 digits)"
        ) from None


def check_ms(name: str, value: object) -> int:
    """Return a point in time that code passes as milliseconds since 1970.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it has another unit.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name} is {value!r}: it must be a whole number of milliseconds since 1970"
        )
    try:
        return parse_ms(str(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def aware_ms(name: str, moment: object) -> int:
    """Return a datetime with a time zone as milliseconds since 1970.

    Raises:
        TypeError: it is not a datetime.
        ValueError: it has no time zone.
    """
    if not isinstance(moment, datetime):
        raise TypeError(
            f"{name} is {moment!r}: it must be a datetime with a time zone, as from "
            "datetime.now(UTC) or .astimezone()"
        )
    if moment.tzinfo is None:
        raise ValueError(
            f"{name}={moment.isoformat()} has no time zone: use an aware datetime, as from "
            "datetime.now(UTC) or .astimezone()"
        )
    return round(moment.timestamp() * 1000)


def parse_ms(text: str) -> int:
    """Parse a number of milliseconds since 1970.

    Raises:
        ValueError: it is not a number, or has another unit; the message says which.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text[:60]!r} is not a number of milliseconds since 1970")
    if DIGITS_OF_DAY <= len(digits) != DIGITS_OF_MS:
        unit = {8: "a day", 10: "seconds", 14: "a date and time", 16: "microseconds"}
        guess = unit.get(len(digits), "something else")
        raise ValueError(
            f"{digits[:60]} looks like {guess}, but milliseconds since 1970 have 13 digits: "
            "write 2030-05-01T12:00, or milliseconds"
        )
    return int(digits)
