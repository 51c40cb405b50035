"""Parses numbers exactly as Java's Integer, Long and Double do.

Python's ``int`` and ``float`` accept blanks, underscores and spellings that Java rejects, and
reject some that Java accepts.
"""

import math
import re
from functools import lru_cache

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

# All quantifiers are possessive, so matching never backtracks.
_DECIMAL = re.compile(
    r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[fFdD]?+", re.ASCII
)
_HEX = re.compile(
    r"([+-]?+0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?+|\.[0-9a-fA-F]++)[pP]([+-]?+)[0-9]++)[fFdD]?+",
    re.ASCII,
)
_NAMED = {
    "NaN": math.nan,
    "+NaN": math.nan,
    "-NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
# The characters that String.trim removes.
_BLANKS = "".join(map(chr, range(33)))
# More digits than a Long has.
_DIGITS = 20
# An expression may parse one long text a thousand times, so the results are cached. All properties
# of a message together have 32 kB, so they cannot contain more texts of this length than the cache
# holds.
LONG_TEXT = 256
_REMEMBERED_MAX = 128


class EvaluationError(Exception):
    """Java would throw an exception here: the message does not match."""


def read_int(text: str) -> int:
    """Parse like Integer.valueOf. Raises EvaluationError."""
    if len(text) < 10 and text.isdecimal() and text.isascii():
        return int(text)
    return _parse_whole(text, INT_MIN, INT_MAX)


def read_long(text: str) -> int:
    """Parse like Long.valueOf. Raises EvaluationError."""
    if len(text) < 19 and text.isdecimal() and text.isascii():
        return int(text)
    return _parse_whole(text, LONG_MIN, LONG_MAX)


def _parse_whole(text: str, low: int, high: int) -> int:
    value = _read_whole(text) if len(text) <= LONG_TEXT else read_long_whole_once(text)
    if not low <= value <= high:
        raise EvaluationError(f"{text[:100]!r} is too large")
    return value


def _read_whole(text: str) -> int:
    digits = text[1:] if text.startswith(("-", "+")) else text
    # Java accepts the digits of all scripts, but only those in the basic multilingual plane.
    if not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        raise EvaluationError(f"{text[:100]!r} is not a whole number")
    if len(digits) > _DIGITS:
        front = digits[:-_DIGITS].lstrip("0")
        if front and any(map(int, front)):
            raise EvaluationError(f"{text[:100]!r} is too large")
        digits = digits[-_DIGITS:]
    return -int(digits) if text[0] == "-" else int(digits)


read_long_whole_once = lru_cache(_REMEMBERED_MAX)(_read_whole)


def read_double(text: str) -> float:
    """Parse like Double.valueOf. Raises EvaluationError."""
    return _read_double(text) if len(text) <= LONG_TEXT else read_long_double_once(text)


def _read_double(text: str) -> float:
    if _DECIMAL.fullmatch(text) is None:
        text = text.strip(_BLANKS)
        if _DECIMAL.fullmatch(text) is None:
            return _read_other_double(text)
    return float(text.rstrip("fFdD"))


def _read_other_double(text: str) -> float:
    if text in _NAMED:
        return _NAMED[text]
    match = _HEX.fullmatch(text)
    if match is None:
        raise EvaluationError(f"{text[:100]!r} is not a number")
    try:
        return float.fromhex(match[1])
    except OverflowError:
        size = 0.0 if match[2] == "-" else math.inf
        return -size if text.startswith("-") else size


read_long_double_once = lru_cache(_REMEMBERED_MAX)(_read_double)


def order_of_doubles(left: float, right: float) -> int:
    """Compare like Double.compareTo: -0.0 is less than 0.0, and NaN greater than all others."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key, right_key = _tie_key(left), _tie_key(right)
    return (left_key > right_key) - (left_key < right_key)


def _tie_key(value: float) -> int:
    if value != value:
        return 2
    return 0 if value == 0 and math.copysign(1.0, value) < 0 else 1
