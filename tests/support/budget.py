"""Rounds of a long test: up to a number, or until their time is up."""

import os
import time
from collections.abc import Iterator

BUDGET_S = float(os.environ.get("ROUNDS_BUDGET_S", "60"))
_AT_LEAST = 3


def rounds(most: int) -> Iterator[int]:
    """Count to *most*; after three rounds, stop once $ROUNDS_BUDGET_S (60) seconds have passed."""
    ends_s = time.monotonic() + BUDGET_S
    for number in range(most):
        if number >= _AT_LEAST and time.monotonic() > ends_s:
            print(f"{number} of {most} rounds: {BUDGET_S:g} s were over")
            return
        yield number
