"""Turning samples into the printed table and into the files under results/."""

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.cases import (
    CASES,
    ECHO,
    FLOOD_MS_MAX,
    IDLE_MEMORY_MB_MAX,
    PEER_CPU_RATIO_MAX,
    START_SECONDS_MAX,
    Case,
)
from benchmarks.load import Sample

OURS = "Rockhopper"
LOAD_LIMITED_SHARE = 0.95


@dataclass(slots=True)
class Results:
    """Everything that one run of the benchmark found."""

    machine: str
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    """By server name, then by case name."""
    start_s: list[float] = field(default_factory=list)
    interpreter_start_s: list[float] = field(default_factory=list)
    idle_memory_mb: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    """What the broker itself tells of event-loop stalls: totals summed, others at their worst."""

    def add(self, server: str, case: Case, sample: Sample) -> None:
        """Keep one more sample."""
        self.samples.setdefault(server, {}).setdefault(case.name, []).append(sample)

    def of(self, server: str, case: Case) -> list[Sample]:
        """Return the samples of one cell; the disturbed ones only if all were."""
        samples = self.samples.get(server, {}).get(case.name, [])
        return [sample for sample in samples if sample.is_quiet] or samples

    def has_failures(self) -> bool:
        """Whether our broker refused anything, or any of its answers was missing or foreign."""
        return any(sample.failures for server, _, sample in self._all() if server == OURS)

    def _all(self) -> Iterable[tuple[str, str, Sample]]:
        for server, cases in self.samples.items():
            for case, samples in cases.items():
                for sample in samples:
                    yield server, case, sample

    def remarks(self) -> list[str]:
        """Say what makes figures doubtful."""
        found = []
        disturbed: dict[str, float] = {}
        for server, case, sample in self._all():
            where = f"{server}, {case}"
            if sample.failures:
                counts = ", ".join(f"{count} {name}" for name, count in sample.failures.items())
                found.append(f"{where}: FAILED answers: {counts} {sample.refusal}".rstrip())
            if not any(other.is_quiet for other in self.samples[server][case]):
                disturbed[where] = max(disturbed.get(where, 0), sample.others_cpu_share)
            if sample.load_cpu_share > LOAD_LIMITED_SHARE and case != ECHO.name:
                found.append(f"{where}: the load generator was the limit")
        for where, share in disturbed.items():
            found.append(f"{where}: DOUBTFUL, other processes used {share:.0%} of a core")
        return found


def median(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    """Return the median of one figure over the rounds."""
    return statistics.median(map(value, samples))


def rate(samples: list[Sample]) -> float:
    """Return the median of the messages per second."""
    return median(samples, lambda sample: sample.messages_per_s)


def cpu_us(samples: list[Sample]) -> float:
    """Return the median of the server's CPU time per message, which noise moves least."""
    return median(samples, lambda sample: sample.cpu_us)


def judged(ratio: float, target: float | None, *, at_most: bool = False) -> str:
    """Show a ratio, its target and whether it is reached."""
    if target is None:
        return f"{ratio:.3f}"
    reached = ratio <= target if at_most else ratio >= target
    sign = "<=" if at_most else ">="
    return (
        f"{ratio:.3f} {sign} {target:g} {'ok' if reached else 'BELOW' if not at_most else 'ABOVE'}"
    )


def table(rows: list[list[str]]) -> str:
    """Lay out rows, the first being the heading, as a Markdown table that also reads as text."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("| " + " | ".join(cells) + " |")
        if number == 0:
            bars = ["-" * width for width in widths]
            lines.append(
                "|"
                + "|".join(f" {bar[:-1]}: " if i else f" {bar} " for i, bar in enumerate(bars))
                + "|"
            )
    return "\n".join(lines)


def render(results: Results) -> str:
    """Return the whole report."""
    parts = [results.machine, _throughput(results)]
    if peers := [name for name in results.samples if name not in (OURS, ECHO.name)]:
        parts += [_against(results, peer) for peer in peers if OURS in results.samples]
    parts.append("\n".join((*_fairness(results), *_start_and_memory(results))))
    if remarks := results.remarks():
        parts.append("\n".join(f"- {remark}" for remark in remarks))
    return "\n\n".join(parts) + "\n"


def _throughput(results: Results) -> str:
    rows = [
        [
            "case",
            "server",
            "k/s median",
            "k/s best",
            "CPU us",
            "p50 ms",
            "p99 ms",
            "to the echo",
            "by CPU",
        ]
    ]
    echo = results.of(ECHO.name, ECHO)
    for case in (ECHO, *CASES):
        for server in results.samples:
            samples = results.of(server, case)
            if not samples:
                continue
            ratio = cpu_ratio = ""
            if echo and case is not ECHO:
                target = case.echo_ratio if server == OURS else None
                ratio = judged(rate(samples) / rate(echo), target)
                cpu_ratio = f"{cpu_us(echo) / cpu_us(samples):.3f}"
            rows.append(
                [
                    case.title,
                    server,
                    f"{rate(samples) / 1000:,.1f}",
                    f"{max(sample.messages_per_s for sample in samples) / 1000:,.1f}",
                    f"{cpu_us(samples):.2f}",
                    f"{median(samples, lambda sample: sample.p50_us) / 1000:.2f}",
                    f"{median(samples, lambda sample: sample.p99_us) / 1000:.2f}",
                    ratio,
                    cpu_ratio,
                ]
            )
    return table(rows)


def _against(results: Results, peer: str) -> str:
    rows = [[f"{OURS} beside {peer}", "messages per second", "CPU per message"]]
    for case in CASES:
        ours, theirs = results.of(OURS, case), results.of(peer, case)
        if not ours or not theirs:
            continue
        cpu_ratio = cpu_us(ours) / cpu_us(theirs)
        cpu_target = PEER_CPU_RATIO_MAX if case.peer_ratio else None
        rows.append(
            [
                case.title,
                judged(rate(ours) / rate(theirs), case.peer_ratio),
                judged(cpu_ratio, cpu_target, at_most=True),
            ]
        )
    return table(rows)


def _fairness(results: Results) -> Iterable[str]:
    alone, flooded = (results.of(OURS, case) for case in CASES if case.name in ("alone", "flooded"))
    if alone and flooded:
        alone_ms, flooded_ms = (
            median(samples, lambda sample: sample.p99_us) / 1000 for samples in (alone, flooded)
        )
        verdict = "ok" if flooded_ms - alone_ms <= FLOOD_MS_MAX else "ABOVE"
        yield (
            f"p99 of a connection beside one that floods: {flooded_ms:.2f} ms, alone "
            f"{alone_ms:.2f} ms (<= {FLOOD_MS_MAX} ms more: {verdict})"
        )


def _start_and_memory(results: Results) -> Iterable[str]:
    if results.start_s:
        typical_s = statistics.median(results.start_s)
        verdict = "ok" if typical_s <= START_SECONDS_MAX else "ABOVE"
        each = ", ".join(f"{value:.3f}" for value in results.start_s)
        bare = min(results.interpreter_start_s)
        yield (
            f"start to listening, empty store: {each} s, median {typical_s:.3f} s "
            f"(<= {START_SECONDS_MAX}: {verdict}); "
            f"the bare interpreter: {bare:.3f} s"
        )
    if results.idle_memory_mb:
        memory = max(results.idle_memory_mb)
        verdict = "ok" if memory <= IDLE_MEMORY_MB_MAX else "ABOVE"
        yield f"resident memory when idle: {memory:.0f} MB (<= {IDLE_MEMORY_MB_MAX}: {verdict})"
    for name, value in results.metrics.items():
        yield f"{name.partition('{')[0]}: {value:g}"


def as_json(results: Results) -> str:
    """Return every sample, for programs."""
    return json.dumps(asdict(results), indent=1)


def save(results: Results, name: str) -> list[Path]:
    """Write the report and the samples to results/NAME.md and results/NAME.json."""
    directory = Path(__file__).parent / "results"
    directory.mkdir(exist_ok=True)
    report, data = directory / f"{name}.md", directory / f"{name}.json"
    report.write_text(render(results))
    data.write_text(as_json(results) + "\n")
    return [report, data]
