"""Live through many seeds, on all cores: python -m tests.simulation [--seeds N] [--first K]."""

import argparse
import multiprocessing
import sys
import time

from tests.simulation import faults
from tests.simulation.rules import Violation


def live(seed: int) -> tuple[int, str, int]:
    """Return the seed, what was broken, and how many messages were acknowledged."""
    try:
        return seed, "", faults.run(seed).rules.acknowledged
    except Violation as violation:
        return seed, str(violation), 0


def main() -> int:
    """Return 1 if any seed broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin no seed later")
    parser.add_argument("--processes", type=int, default=None)
    options = parser.parse_args()
    started, lived, broken, acknowledged = time.monotonic(), 0, 0, 0
    with multiprocessing.Pool(options.processes) as pool:
        seeds = range(options.first, options.first + options.seeds)
        for seed, violation, count in pool.imap_unordered(live, seeds, chunksize=20):
            lived, acknowledged = lived + 1, acknowledged + count
            if violation:
                broken += 1
                print(f"seed {seed}: {violation}", flush=True)
            if time.monotonic() - started > options.budget_s:
                pool.terminate()
                break
    elapsed_s = time.monotonic() - started
    print(
        f"{lived:,} of {options.seeds:,} seeds, {broken} broken, "
        f"{acknowledged:,} messages acknowledged, {elapsed_s:.0f} s"
    )
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
