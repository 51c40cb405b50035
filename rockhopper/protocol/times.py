"""Points in time as people type them, for every command, page and option.

    2026-11-29            the day, from its midnight on
    20261129              the same day
    2026-11-29T12:00      local time, unless it names a zone (+01:00, Z)
    1796040000000         milliseconds since 1970, 13 digits: the years 2001 to 2286

A number of another size is refused: 8 digits could be a day or 1970, 10 digits are seconds. Numbers
below 8 digits are milliseconds too; nobody means a day by them.
"""

import re
from datetime import datetime, tzinfo

DIGITS_OF_DAY = 8
DIGITS_OF_MS = 13
_BASIC_DAY = re.compile(r"\d{8}")


def parse_time_ms(text: str, zone: tzinfo | None = None) -> int:
    """Milliseconds since 1970; *zone* is that of a time without one, by default this host's.

    Raises:
        ValueError: it is no time; the sentence says what to write.
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
            f"{text[:60]!r} is no time: write 2030-05-01T12:00, with or without a zone, or "
            "milliseconds since 1970 (13 digits)"
        ) from None


def check_ms(name: str, value: object) -> int:
    """Return a point in time that code gives as milliseconds since 1970.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is one of another unit.
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
        TypeError: it is no datetime.
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
    """A number of milliseconds since 1970.

    Raises:
        ValueError: it is no number, or one of another unit; the sentence says which.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text[:60]!r} is no number of milliseconds since 1970")
    if DIGITS_OF_DAY <= len(digits) != DIGITS_OF_MS:
        unit = {8: "a day", 10: "seconds", 14: "a date and time", 16: "microseconds"}
        guess = unit.get(len(digits), "something else")
        raise ValueError(
            f"{digits[:60]} looks like {guess}, and milliseconds since 1970 have 13 digits: write "
            "2030-05-01T12:00, or milliseconds"
        )
    return int(digits)
