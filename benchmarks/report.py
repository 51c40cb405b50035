"""Renders the samples of a run as tables for people."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.cases import (
    ALONE_US_MAX,
    BASE,
    CASES,
    ECHO,
    ECHOES,
    FLOOD_MS_MAX,
    GROUP_COMMIT_RATIO_MIN,
    IDLE_MEMORY_MB_MAX,
    START_RATIO_MAX,
    START_SECONDS_MAX,
    TABLE,
    Case,
)
from benchmarks.load import Sample
from benchmarks.results import DIRECTORY, OURS, Results, as_json, cpu_us, median, over, rate
from benchmarks.servers import LIBRARIES

LOAD_LIMITED_SHARE = 0.95


def remarks(results: Results) -> list[str]:
    """Return the reasons to doubt the figures."""
    found = []
    disturbed: dict[str, float] = {}
    for server, case, sample in results.all():
        where = f"{server}, {case}"
        if sample.failures:
            counts = ", ".join(f"{count} {name}" for name, count in sample.failures.items())
            found.append(f"{where}: FAILED answers: {counts} {sample.refusal}".rstrip())
        if not any(other.is_quiet for other in results.samples[server][case]):
            disturbed[where] = max(disturbed.get(where, 0), sample.others_cpu_share)
        if sample.load_cpu_share > LOAD_LIMITED_SHARE and server != ECHO.name:
            found.append(f"{where}: the load generator was the limit")
    for where, share in disturbed.items():
        found.append(f"{where}: DOUBTFUL, other processes used {share:.0%} of a core")
    return found


def judged(ratio: float, target: float | None, *, at_most: bool = False) -> str:
    """Return a ratio, its target and whether it is reached."""
    if target is None:
        return f"{ratio:.3f}"
    reached = ratio <= target if at_most else ratio >= target
    sign = "<=" if at_most else ">="
    return (
        f"{ratio:.3f} {sign} {target:g} {'ok' if reached else 'BELOW' if not at_most else 'ABOVE'}"
    )


def table(rows: list[list[str]]) -> str:
    """Return rows as a Markdown table that is also readable as text.

    The first row is the heading.
    """
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
    if results.origin:
        parts.insert(0, results.origin.text())
    for peer in results.peers():
        parts += [_against(results, peer), *_latencies(results, peer)]
    parts += list(_spread(results))
    lines = (
        _alone(results),
        _group_commit(results),
        _fairness(results),
        _start_and_memory(results),
    )
    parts.append("\n".join(line for each in lines for line in each))
    if found := remarks(results):
        parts.append("\n".join(f"- {remark}" for remark in found))
    return "\n\n".join(part for part in parts if part) + "\n"


def _milliseconds(samples: Sequence[Sample]) -> tuple[float, float]:
    """Return the medians of p50 and p99."""
    p50 = median(samples, lambda sample: sample.p50_us)
    return p50 / 1000, median(samples, lambda sample: sample.p99_us) / 1000


def _throughput(results: Results) -> str:
    heading = "case|server|k/s median|k/s best|CPU us|p50 ms|p99 ms|to the echo|by CPU"
    rows = [heading.split("|")]
    for case in (*ECHOES, *CASES):
        echo = results.of(ECHO.name, case.echo)
        for server in results.samples:
            if samples := results.of(server, case.name):
                rows.append(_speed(case, server, samples, echo))
    return table(rows)


def _speed(case: Case, server: str, samples: list[Sample], echo: list[Sample]) -> list[str]:
    ratio = cpu_ratio = ""
    if echo and server != ECHO.name:
        target = case.targets.echo_ratio if server == OURS else None
        ratio = judged(over(rate(samples), rate(echo)), target)
        cpu_ratio = f"{over(cpu_us(echo), cpu_us(samples)):.3f}"
    p50_ms, p99_ms = _milliseconds(samples)
    return [
        case.title,
        server,
        f"{rate(samples) / 1000:,.1f}",
        f"{max(sample.messages_per_s for sample in samples) / 1000:,.1f}",
        f"{cpu_us(samples):.2f}",
        f"{p50_ms:.2f}",
        f"{p99_ms:.2f}",
        ratio,
        cpu_ratio,
    ]


def _pairs(
    results: Results, peer: str, cases: Iterable[Case]
) -> Iterator[tuple[Case, list[Sample], list[Sample]]]:
    for case in cases:
        ours, theirs = results.of(OURS, case.name), results.of(peer, case.name)
        if ours and theirs:
            yield case, ours, theirs


def _against(results: Results, peer: str) -> str:
    rows = [[f"{OURS} beside {peer}", "messages per second", "CPU per message"]]
    for case, ours, theirs in _pairs(results, peer, CASES):
        if case.half_of:
            continue
        rows.append(
            [
                case.title,
                judged(over(rate(ours), rate(theirs)), case.targets.peer_ratio),
                judged(over(cpu_us(ours), cpu_us(theirs)), case.targets.cpu_ratio, at_most=True),
            ]
        )
    return table(rows) if len(rows) > 1 else ""


def _latencies(results: Results, peer: str) -> Iterator[str]:
    for case, ours, theirs in _pairs(results, peer, CASES):
        if not case.half_of:
            continue
        wanted = (case.targets.p50_ratio, case.targets.p99_ratio)
        rows = [[case.title, OURS, peer, "ratio"]]
        for name, target, mine, other in zip(
            ("p50 ms", "p99 ms"), wanted, _milliseconds(ours), _milliseconds(theirs), strict=True
        ):
            ratio = judged(over(mine, other), target, at_most=True)
            rows.append([name, f"{mine:.2f}", f"{other:.2f}", ratio])
        yield table(rows)


def _spread(results: Results) -> Iterator[str]:
    """Yield the table of --table: each cell beside the base and beside the peers."""
    base = results.of(OURS, BASE.name)
    if not base or not any(results.of(OURS, case.name) for case in TABLE):
        return
    peers = results.peers()
    rows = [["single sends", "k/s", "CPU us", "CPU to the base", *(f"to {name}" for name in peers)]]
    for case in (BASE, *TABLE):
        if not (samples := results.of(OURS, case.name)):
            continue
        cpu_ratio = over(cpu_us(samples), cpu_us(base))
        theirs = [results.of(peer, case.name) for peer in peers]
        rows.append(
            [
                "128 B x 4 connections x 1 topic" if case is BASE else case.title,
                f"{rate(samples) / 1000:,.1f}",
                f"{cpu_us(samples):.2f}",
                judged(cpu_ratio, case.targets.base_cpu_ratio, at_most=True),
                *(f"{over(rate(samples), rate(each)):.3f}" if each else "" for each in theirs),
            ]
        )
    yield table(rows)


def _alone(results: Results) -> Iterable[str]:
    ours, echo = results.of(OURS, "alone"), results.of(ECHO.name, "echo-1x1")
    if ours and echo:
        ours_us, echo_us = (_milliseconds(samples)[0] * 1000 for samples in (ours, echo))
        verdict = "ok" if ours_us - echo_us <= ALONE_US_MAX else "ABOVE"
        yield (
            f"p50 of one send at a time: {ours_us:.1f} us, of the echo {echo_us:.1f} us "
            f"(<= {ALONE_US_MAX} us more: {verdict})"
        )


def _group_commit(results: Results) -> Iterable[str]:
    if not results.fdatasync_us:
        return
    sync_us = statistics.median(results.fdatasync_us)
    line = f"one fdatasync on the store's disk: {sync_us:.0f} us"
    synced, unsynced = (results.of(OURS, name) for name in ("100x1-sync", "100x1"))
    if synced and unsynced:
        possible = 100 / (sync_us + 100 * cpu_us(unsynced)) * 1e6
        ratio = judged(over(rate(synced), possible), GROUP_COMMIT_RATIO_MIN)
        line += (
            f"; with 100 sends in each, and the CPU time of 100 x 1, {possible / 1000:,.1f} k/s "
            f"are possible with SYNC_FLUSH: {ratio}"
        )
    yield line


def _fairness(results: Results) -> Iterable[str]:
    alone, flooded = (results.of(OURS, name) for name in ("alone", "flooded"))
    if alone and flooded:
        alone_ms, flooded_ms = (_milliseconds(samples)[1] for samples in (alone, flooded))
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
    if results.start_s and results.libraries_start_s:
        ratio = statistics.median(results.start_s) / statistics.median(results.libraries_start_s)
        verdict = "ok" if ratio <= START_RATIO_MAX else "ABOVE"
        yield (
            f"start beside an interpreter that imports {LIBRARIES}: {ratio:.1f} x "
            f"(<= {START_RATIO_MAX}: {verdict})"
        )
    if results.idle_memory_mb:
        memory = max(results.idle_memory_mb)
        verdict = "ok" if memory <= IDLE_MEMORY_MB_MAX else "ABOVE"
        yield f"resident memory when idle: {memory:.0f} MB (<= {IDLE_MEMORY_MB_MAX}: {verdict})"
    for name, value in results.metrics.items():
        yield f"{name.partition('{')[0]}: {value:g}"


def save(results: Results, name: str, directory: Path = DIRECTORY) -> list[Path]:
    """Write the report and the samples to NAME.md and NAME.json."""
    directory.mkdir(exist_ok=True)
    report, data = directory / f"{name}.md", directory / f"{name}.json"
    report.write_text(render(results))
    data.write_text(as_json(results) + "\n")
    return [report, data]
