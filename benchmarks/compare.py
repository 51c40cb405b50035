"""The changes from one stored run to another: `python -m benchmarks.compare A B`.

For each case it compares two medians over the rounds: messages per second over the frames of the
echo of the same round, and CPU time per message. A change counts if it is larger than the spread of
the rounds of either run, and larger than NOISE; otherwise it is shown as =. A run of one round has
no spread, so NOISE_OF_ONE replaces it.
"""

import statistics
import sys
from collections.abc import Iterator, Sequence

from benchmarks import results
from benchmarks.cases import CASES, TABLE
from benchmarks.report import table
from benchmarks.results import OURS, Results

NOISE = 0.03
NOISE_OF_ONE = 0.1
USAGE = "python -m benchmarks.compare A B, where each is a name in benchmarks/results, or a path"


def change(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the relative change of the median; 0.0 if it is within the noise."""
    old, new = statistics.median(before), statistics.median(after)
    is_noise = abs(new - old) <= max(_noise(before), _noise(after))
    return 0.0 if is_noise else results.over(new, old) - 1


def _noise(rounds: Sequence[float]) -> float:
    least = NOISE if len(rounds) > 1 else NOISE_OF_ONE
    return max(max(rounds) - min(rounds), least * statistics.median(rounds))


def shown(before: Sequence[float], after: Sequence[float], *, more_is_better: bool) -> str:
    """Return both medians and the change between them."""
    if not before or not after:
        return ""
    share = change(before, after)
    figures = f"{statistics.median(before):.3f} -> {statistics.median(after):.3f}"
    if not share:
        return f"{figures} ="
    verdict = "better" if (share > 0) == more_is_better else "WORSE"
    return f"{figures} {share:+.0%} {verdict}"


def render(before: Results, after: Results) -> str:
    """Return the table of the cases that both runs have, and the reasons to doubt it."""
    rows = [["case", "to the echo", "CPU us per message"]]
    for case in (*CASES, *TABLE):
        if before.of(OURS, case.name) and after.of(OURS, case.name):
            ratios = before.echo_ratios(case), after.echo_ratios(case)
            cpu = before.cpu_us(case.name), after.cpu_us(case.name)
            rows.append(
                [
                    case.title,
                    shown(*ratios, more_is_better=True),
                    shown(*cpu, more_is_better=False),
                ]
            )
    if len(rows) == 1:
        return "The two runs have no case in common."
    return "\n".join([table(rows), *_doubts(before, after)])


def _doubts(before: Results, after: Results) -> Iterator[str]:
    for name, run in (("A", before), ("B", after)):
        counts = [len(run.by_round(OURS, case)) for case in run.samples.get(OURS, {})]
        if min(counts, default=0) < 2:
            yield f"- {name} has cases of one quiet round: up to {NOISE_OF_ONE:.0%} is ="
        if any(not run.of(server, case)[0].is_quiet for server, case, _ in run.all()):
            yield f"- {name} was disturbed throughout in some of its cases"
    if before.origin and after.origin:
        machines = [(each.cpu_model, each.cores) for each in (before.origin, after.origin)]
        if machines[0] != machines[1]:
            yield "- they ran on different machines: CPU times tell nothing"


def main(arguments: Sequence[str]) -> int:
    """Print the changes; return 2 if there is nothing to compare."""
    if len(arguments) != 2 or not all(arguments):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        before, after = map(results.read, arguments)
    except FileNotFoundError as error:
        print(f"There is no run {error.filename}. {USAGE}", file=sys.stderr)
        return 2
    print(render(before, after))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
