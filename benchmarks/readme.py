"""The speed figures in README.md, made from the newest kept run: `python -m benchmarks.readme`.

They stand between two comments. A run counts if it has all that is told there: a start of ours, and
SUBJECTS beside Apache's broker. With --check nothing is written.
"""

import statistics
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results
from benchmarks.errors import BenchError
from benchmarks.load import HERE
from benchmarks.results import OURS, Results

README = HERE.parent / "README.md"
BEGIN = "<!-- figures of python -m benchmarks.readme -->"
END = "<!-- end of figures -->"
SUBJECTS = {"single": "single sends", "batch": "batches", "pull": "pulls"}
WIDTH = 100


def newest_whole(directory: Path = results.DIRECTORY) -> tuple[str, Results]:
    """The newest run that has every figure, by its name."""
    for name, found in results.newest_first(directory):
        servers = (OURS, *found.peers())
        is_whole = all(found.of(server, case) for server in servers for case in SUBJECTS)
        if len(servers) > 1 and is_whole and found.start_s and found.idle_memory_mb:
            return name, found
    raise BenchError(f"No run in {directory} has all cases beside Apache's broker.")


def figures(name: str, found: Results) -> str:
    """What README says of a run."""
    peer = found.peers()[0]
    version = peer.removeprefix("Apache ")
    times, cpu = {}, {}
    for case in SUBJECTS:
        ours, theirs = found.of(OURS, case), found.of(peer, case)
        times[case] = results.over(results.rate(ours), results.rate(theirs))
        cpu[case] = results.over(results.cpu_us(ours), results.cpu_us(theirs))
    sentence = (
        f"one process, up in {statistics.median(found.start_s):.2f} s, "
        f"{max(found.idle_memory_mb):.0f} MB idle. On one core it takes "
        f"{times['single']:.1f} times the single sends of Apache's broker {version}, "
        f"{times['batch']:.1f} times the batches and {times['pull']:.1f} times the pulls, with "
        f"{cpu['single']:.0%}, {cpu['batch']:.0%} and {cpu['pull']:.0%} of the CPU time each "
        f"([measured](benchmarks/results/{name}.md))."
    )
    return "\n".join(
        textwrap.wrap(
            sentence,
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    )


def rewritten(text: str, told: str) -> str:
    """*text* with other figures between its two comments."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"README.md has no {BEGIN} … {END}.")
    return f"{before}{BEGIN}\n{told}\n  {END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Rewrite README.md; with --check return 1 if that would change it."""
    text = README.read_text(encoding="utf-8")
    wanted = rewritten(text, figures(*newest_whole()))
    if "--check" in arguments:
        return int(text != wanted)
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
