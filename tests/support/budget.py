"""Rounds of a long test: as many as asked for, unless their time is up before."""

import os
import time
from collections.abc import Iterator

BUDGET_S = float(os.environ.get("ROUNDS_BUDGET_S", "60"))
_AT_LEAST = 3


def rounds(most: int) -> Iterator[int]:
    """Count to *most*; from the fourth round on only while $ROUNDS_BUDGET_S (60) are not over."""
    ends_s = time.monotonic() + BUDGET_S
    for number in range(most):
        if number >= _AT_LEAST and time.monotonic() > ends_s:
            print(f"{number} of {most} rounds: {BUDGET_S:g} s were over")
            return
        yield number
