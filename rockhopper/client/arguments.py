"""Checks numeric arguments of applications, with errors that name the argument."""

from numbers import Integral


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise TypeError unless `value` is a whole number, ValueError if it is below `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}: it must be a whole number")
    if value < least:
        raise ValueError(f"{name} is {value}: it must be at least {least}")


def check_seconds(name: str, value: object, *, may_be_zero: bool = False) -> None:
    """Raise TypeError unless `value` is a number, ValueError if it is too small."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: it must be a number of seconds")
    if not (value >= 0 if may_be_zero else value > 0):
        bound = "0 or above" if may_be_zero else "above 0"
        raise ValueError(f"{name} is {value} s: it must be {bound}")
