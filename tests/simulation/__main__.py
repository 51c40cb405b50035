"""Run many seeds, on all cores: python -m tests.simulation [--seeds N] [--first K].

Every five hundred seeds, one line of progress is printed. With ``--progress FILE``, the same
command continues where it was stopped, and keeps the earlier results.
"""

import argparse
import json
import multiprocessing
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulation import faults
from tests.simulation.rules import Violation

BLOCK = 500


@dataclass
class Progress:
    """The results of the seeds so far."""

    first: int
    next: int
    broken: int = 0
    acknowledged: int = 0
    lost: int = 0
    """Messages lost by elections that an operator forced."""

    @property
    def lived(self) -> int:
        """The number of seeds so far."""
        return self.next - self.first

    def __str__(self) -> str:
        """Return one line for a person."""
        return (
            f"{self.lived:,} seeds, {self.broken} broken, {self.acknowledged:,} messages "
            f"acknowledged, {self.lost:,} lost by operators"
        )


def live(seed: int) -> tuple[int, str, int, int]:
    """Return the seed, the broken rule, and how many messages were acknowledged, and lost."""
    try:
        rules = faults.run(seed).rules
    except Violation as violation:
        return seed, str(violation), 0, 0
    return seed, "", rules.acknowledged, rules.lost


def load(path: Path | None, first: int) -> Progress:
    """Return the progress of the last run, if it began with the same seed."""
    if path and path.exists():
        found = Progress(**json.loads(path.read_text()))
        if found.first == first:
            return found
    return Progress(first, first)


def main() -> int:
    """Return 1 if any seed broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin no block later")
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--progress", type=Path, help="where to note how far it is, and to go on")
    options = parser.parse_args()
    started_s, end = time.monotonic(), options.first + options.seeds
    progress = load(options.progress, options.first)
    with multiprocessing.Pool(options.processes) as pool:
        while progress.next < end and time.monotonic() - started_s <= options.budget_s:
            seeds = range(progress.next, min(progress.next + BLOCK, end))
            for seed, violation, acknowledged, lost in pool.imap_unordered(live, seeds, 20):
                progress.acknowledged += acknowledged
                progress.lost += lost
                if violation:
                    progress.broken += 1
                    print(f"seed {seed}: {violation}", flush=True)
            progress.next = seeds.stop
            print(f"{progress}, {time.monotonic() - started_s:.0f} s", flush=True)
            if options.progress:
                options.progress.write_text(json.dumps(asdict(progress)))
    return int(progress.broken > 0)


if __name__ == "__main__":
    sys.exit(main())
