"""The figures in README.md and docs/comparison.md: `python -m benchmarks.readme`.

Each page has them between two comments. They come from the newest comparison with other brokers,
the newest run with all cases beside Apache's broker, and the newest table of single sends. With
--check nothing is written.
"""

import statistics
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import results
from benchmarks.brokers.report import clients_ahead, compare
from benchmarks.brokers.results import (
    COLUMNS,
    SIZES,
    Comparison,
    cell,
    from_json,
)
from benchmarks.cases import CASES, FEW_IN_FLIGHT, TABLE, Case
from benchmarks.errors import BenchError
from benchmarks.load import HERE
from benchmarks.report import table
from benchmarks.results import OURS, Results

ROOT = HERE.parent
BEGIN = "<!-- figures of python -m benchmarks.readme -->"
END = "<!-- end of figures -->"
WIDTH = 116
KINDS = tuple(case for case in CASES if not case.half_of and case not in FEW_IN_FLIGHT)
"""The cases that a run beside Apache's broker must have; FEW_IN_FLIGHT are shown if it has them."""
ROWS = {
    "1x1": "1 connection, 1 request in flight",
    "4x1": "4 connections, 1 in flight each",
    "16x1": "16 connections, 1 in flight each",
    "100x1": "100 connections, 1 in flight each",
    "1000x1": "1,000 connections, 1 each",
    "5000x1": "5,000 connections, 1 each",
    "4x64": "4 connections, 64 each",
    "batch": "4 connections, batches of 32",
    "pull": "4 connections, pulls of 32",
}


def newest_with(cases: Iterable[Case], directory: Path = results.DIRECTORY) -> tuple[str, Results]:
    """Return the name and the newest run that has all *cases* of ours and of Apache's broker."""
    for name, found in results.newest_first(directory):
        servers = (OURS, *found.peers())
        if len(servers) > 1 and all(
            found.of(each, case.name) for each in servers for case in cases
        ):
            return name, found
    titles = ", ".join(case.name for case in cases)
    raise BenchError(f"no run in {directory} has {titles} beside Apache's broker")


def newest_comparison(directory: Path = results.DIRECTORY) -> tuple[str, Comparison]:
    """Return the name and the newest comparison with other brokers."""
    paths = sorted(directory.glob("brokers-*.json"))
    if not paths:
        raise BenchError(f"no comparison in {directory}: run `make bench-brokers`")
    return paths[-1].stem, from_json(paths[-1].read_text())


def short_figures(directory: Path = results.DIRECTORY) -> str:
    """Return the figures of README.md: ranges over sizes, our losses, and Apache's broker."""
    _, found = newest_comparison(directory)
    low, *_, high = SIZES.values()
    parts = [
        _wrap(
            f"Acknowledged sends, thousands a second, of {high} to {low}; in bold what is more "
            "than twice the next, at each size. Each broker had one core. What each promises by an "
            "acknowledgement, and the versions: [comparison](docs/comparison.md); "
            "`make bench-brokers`."
        ),
        _ranges(found),
        _wrap(f"{_where_we_lose(found)} {_beside_apache(directory)}".lstrip()),
    ]
    return "\n\n".join(part for part in parts if part)


def long_figures(directory: Path = results.DIRECTORY) -> str:
    """Return the figures of docs/comparison.md: the comparison, and all cases beside Apache."""
    name, found = newest_comparison(directory)
    run, beside = newest_with(KINDS, directory)
    table_run, by_shape = newest_with(TABLE, directory)
    peer = beside.peers()[0]
    parts = [
        f"{found.origin.text()}\n\n{found.machine}\n\n{compare(found).rstrip()}",
        _wrap(
            f"Every sample is in [{name}.json](../benchmarks/results/{name}.json). Apache RocketMQ "
            f"had both cores in two further runs ([{run}](../benchmarks/results/{run}.md), "
            f"[{table_run}](../benchmarks/results/{table_run}.md)). Ours over {peer}:"
        ),
        table(
            [
                ["load", "messages a second", "CPU time a message"],
                *(_ratios(beside, peer, case) for case in _measured(beside, peer, KINDS)),
                *(_ratios(by_shape, by_shape.peers()[0], case) for case in TABLE),
            ]
        ),
    ]
    return "\n\n".join(parts)


PAGES = {ROOT / "README.md": short_figures, ROOT / "docs" / "comparison.md": long_figures}


def rewrite(text: str, figures: str) -> str:
    """Return *text* with new figures between its two comments."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Rewrite both pages; with --check return 1 if that would change one."""
    is_stale = False
    for path, figures in PAGES.items():
        text = path.read_text(encoding="utf-8")
        wanted = rewrite(text, figures())
        is_stale |= text != wanted
        if "--check" not in arguments:
            path.write_text(wanted, encoding="utf-8")
    return int(is_stale and "--check" in arguments)


def _wrap(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH, break_on_hyphens=False, break_long_words=False)


def _ranges(found: Comparison) -> str:
    names = [each.name for each in found.entries if each.is_default]
    rows = [["", *names]]
    for shape in COLUMNS:
        rates = {name: _rates(found, name, shape) for name in names}
        if not any(rates.values()):
            continue
        far_ahead = _far_ahead(rates)
        rows.append(
            [ROWS[shape], *(_range(rates[name], is_bold=name == far_ahead) for name in names)]
        )
    rows.append(
        ["start to a first send, s", *(f"{_middle(found.start_s.get(name)):.2f}" for name in names)]
    )
    rows.append(
        ["memory when idle, MB", *(f"{_middle(found.idle_mb.get(name)):,.0f}" for name in names)]
    )
    return table(rows)


def _middle(values: list[float] | None) -> float:
    return statistics.median(values) if values else float("nan")


def _far_ahead(rates: dict[str, list[float]]) -> str | None:
    """Return the name whose rate is more than twice that of all others, at each size."""
    for name, ours in rates.items():
        others = [theirs for other, theirs in rates.items() if other != name and theirs]
        if (
            ours
            and others
            and all(
                our > 2 * their
                for theirs in others
                for our, their in zip(ours, theirs, strict=False)
            )
        ):
            return name
    return None


def _range(values: list[float], *, is_bold: bool) -> str:
    """Return the range from minimum to maximum."""
    if not values:
        return "–"
    low, high = (
        f"{each:,.0f}" if each >= 10 else f"{each:.1f}" for each in (min(values), max(values))
    )
    shown = low if low == high else f"{low}–{high}"
    return f"**{shown}**" if is_bold else shown


def _where_we_lose(found: Comparison) -> str:
    lost = [ROWS[shape] for shape in COLUMNS if _is_lost(found, shape)]
    ahead = list(clients_ahead(found))
    parts = []
    if lost:
        parts.append(f"Rockhopper is not the fastest with {'; '.join(lost)}.")
    if ahead:
        parts.append(f"Python clients that are ahead of ours: {'; '.join(ahead)}.")
    return " ".join(parts)


def _is_lost(found: Comparison, shape: str) -> bool:
    ours = _rates(found, OURS, shape)
    others = (_rates(found, each.name, shape) for each in found.entries if each.is_default)
    return any(theirs > our for each in others for theirs, our in zip(each, ours, strict=False))


def _rates(found: Comparison, name: str, shape: str) -> list[float]:
    """Return thousands per second, by size."""
    samples = (found.of(name, each) for each in _cells(shape))
    return [results.rate(each) / 1000 for each in samples if each]


def _cells(shape: str) -> list[str]:
    return [cell(size_bytes, shape) for size_bytes in SIZES]


def _beside_apache(directory: Path) -> str:
    parts = []
    for kind, cases in (
        ("as many messages a second, by kind of load", KINDS),
        ("for single sends of other sizes and shapes", TABLE),
    ):
        name, found = newest_with(cases, directory)
        peer = found.peers()[0]
        ratios = {case.title: _times(found, peer, case) for case in _measured(found, peer, cases)}
        least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        parts.append(
            f"{ratios[least]:.1f} times ({least}) to {ratios[most]:.1f} times ({most}) {kind} "
            f"([run](benchmarks/results/{name}.md))"
        )
    return (
        "Beside Apache RocketMQ with both cores, one of them shared with the load, Rockhopper "
        f"handled {', and '.join(parts)}."
    )


def _measured(found: Results, peer: str, cases: Iterable[Case]) -> list[Case]:
    """Return those of *cases* and of FEW_IN_FLIGHT that the run has, of ours and of the peer."""
    return [
        case
        for case in (*cases, *FEW_IN_FLIGHT)
        if found.of(OURS, case.name) and found.of(peer, case.name)
    ]


def _times(found: Results, peer: str, case: Case) -> float:
    ours, theirs = found.of(OURS, case.name), found.of(peer, case.name)
    return results.over(results.rate(ours), results.rate(theirs))


def _ratios(found: Results, peer: str, case: Case) -> list[str]:
    ours, theirs = found.of(OURS, case.name), found.of(peer, case.name)
    cpu = results.over(results.cpu_us(ours), results.cpu_us(theirs))
    return [case.title, f"{_times(found, peer, case):.2f}", f"{cpu:.2f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
