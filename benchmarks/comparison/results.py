"""The results of a comparison, and its report: results/comparison-DATE.json and .md."""

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load import Sample
from benchmarks.origin import Origin
from benchmarks.report import LOAD_LIMITED_SHARE, table
from benchmarks.results import DIRECTORY, cpu_us, median, rate

OURS = "Rockhopper"
ECHO = "bare echo, frames of 200 bytes"
SIZES = {128: "128 B", 1024: "1 KiB"}
SHAPES = {
    "100x1": (100, 1, "100 x 1"),
    "4x64": (4, 64, "4 x 64"),
    "1x1": (1, 1, "1 x 1"),
    "1000x1": (1000, 1, "1,000 x 1"),
    "batch": (4, 64, "batches of 32"),
}
"""Connections, requests in flight on each, and a heading; the most important first."""
COLUMNS = ("1x1", "100x1", "4x64", "1000x1", "batch")


def cell(size_bytes: int, shape: str) -> str:
    """Return the name of a cell of the tables."""
    return f"{size_bytes}-{shape}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A broker that was measured."""

    name: str
    version: str
    settings: str
    is_synced: bool
    is_default: bool
    """Whether it is in the first tables, with all shapes."""


@dataclass(slots=True)
class Comparison:
    """All results of one run."""

    machine: str
    origin: Origin
    entries: list[Entry] = field(default_factory=list)
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    """The samples by broker, then by cell."""
    start_s: dict[str, list[float]] = field(default_factory=dict)
    """The time from the start of the process to the first acknowledged send."""
    idle_mb: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Brokers that are not installed here, and why."""
    failures: list[str] = field(default_factory=list)
    """Cells that got answers other than acknowledgements; they are not counted."""
    notes: list[str] = field(default_factory=list)
    """Further remarks for a reader, written by the person who made the run."""

    def add(self, name: str, cell: str, sample: Sample) -> None:
        """Add a sample, unless an answer in it was no acknowledgement."""
        if sample.failures:
            self.failures.append(f"{name}, {cell}: {sample.failures} {sample.refusal}".rstrip())
            return
        self.samples.setdefault(name, {}).setdefault(cell, []).append(sample)

    def rounds(self) -> int:
        """Return the number of rounds."""
        samples = [
            each for cells in self.samples.values() for rows in cells.values() for each in rows
        ]
        return max((sample.round + 1 for sample in samples), default=0)

    def of(self, name: str, cell: str) -> list[Sample]:
        """Return the samples of one cell; the disturbed ones only if all were disturbed."""
        samples = self.samples.get(name, {}).get(cell, [])
        return [sample for sample in samples if sample.is_quiet] or samples


def as_json(found: Comparison) -> str:
    """Return every sample, for programs."""
    return json.dumps(asdict(found), indent=1)


def from_json(text: str) -> Comparison:
    """Read the output of as_json()."""
    document: dict[str, Any] = json.loads(text)
    document["origin"] = Origin(**document["origin"])
    document["entries"] = [Entry(**each) for each in document["entries"]]
    document["samples"] = {
        name: {cell: [Sample(**each) for each in rows] for cell, rows in cells.items()}
        for name, cells in document["samples"].items()
    }
    return Comparison(**document)


def save(found: Comparison, name: str, directory: Path = DIRECTORY) -> list[Path]:
    """Write the report and the samples to NAME.md and NAME.json."""
    report, data = directory / f"{name}.md", directory / f"{name}.json"
    report.write_text(render(found))
    data.write_text(as_json(found) + "\n")
    return [report, data]


def render(found: Comparison) -> str:
    """Return the whole report."""
    parts = [found.origin.text(), found.machine]
    defaults = [each.name for each in found.entries if each.is_default]
    for size_bytes, title in SIZES.items():
        parts.append(
            f"Acknowledged sends of {title}, thousands a second (connections x requests in flight):"
        )
        parts.append(_rates(found, [*defaults, ECHO], size_bytes, COLUMNS))
    parts += ["One send of 128 B, and the process:", _costs(found, defaults)]
    others = [each.name for each in found.entries if not each.is_default]
    if others:
        parts += [
            "Other settings: fsync before the acknowledgement, or pure Python, 128 B:",
            _synced(found, others),
        ]
    parts += [_settings(found), "\n".join(f"- {each}" for each in remarks(found))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _rate(samples: list[Sample]) -> str:
    return _number(rate(samples) / 1000) if samples else ""


def _rates(found: Comparison, names: list[str], size_bytes: int, shapes: tuple[str, ...]) -> str:
    rows = [[f"k/s, {SIZES[size_bytes]}", *(SHAPES[shape][2] for shape in shapes)]]
    for name in names:
        cells = [_rate(found.of(name, cell(size_bytes, shape))) for shape in shapes]
        if any(cells):
            rows.append([name, *cells])
    return table(rows)


def _latency(samples: list[Sample]) -> list[str]:
    if not samples:
        return ["", "", ""]
    p50_us = median(samples, lambda sample: sample.p50_us)
    p99_us = median(samples, lambda sample: sample.p99_us)
    return [f"{p50_us / 1000:.2f}", f"{p99_us / 1000:.2f}", f"{cpu_us(samples):.1f}"]


def _costs(found: Comparison, names: list[str]) -> str:
    heading = "|p50 ms at 100 x 1|p99 ms|CPU us|CPU us at 4 x 64|start to a send, s|idle, MB"
    rows = [heading.split("|")]
    for name in names:
        pipelined = found.of(name, cell(128, "4x64"))
        starts, sizes = found.start_s.get(name), found.idle_mb.get(name)
        rows.append(
            [
                name,
                *_latency(found.of(name, cell(128, "100x1"))),
                f"{cpu_us(pipelined):.1f}" if pipelined else "",
                f"{statistics.median(starts):.2f}" if starts else "",
                f"{statistics.median(sizes):,.0f}" if sizes else "",
            ]
        )
    return table(rows)


def _synced(found: Comparison, names: list[str]) -> str:
    heading = "128 B|k/s at 100 x 1|p50 ms|p99 ms|CPU us|k/s at 4 x 64|p50 ms|p99 ms|CPU us"
    rows = [heading.split("|")]
    for name in names:
        row = [name]
        for shape in ("100x1", "4x64"):
            samples = found.of(name, cell(128, shape))
            row += [_rate(samples), *_latency(samples)]
        rows.append(row)
    return table(rows)


def _settings(found: Comparison) -> str:
    rows = [["broker", "version", "settings"]]
    rows += [[each.name, each.version, each.settings] for each in found.entries]
    return table(rows)


def losses(found: Comparison) -> Iterator[str]:
    """Yield the cells in which another broker acknowledges more sends per second than ours."""
    defaults = [each.name for each in found.entries if each.is_default and each.name != OURS]
    for size_bytes, title in SIZES.items():
        for shape in COLUMNS:
            ours = found.of(OURS, cell(size_bytes, shape))
            faster = [
                f"{name} ({rate(samples) / rate(ours):.2f} times)"
                for name in defaults
                if (samples := found.of(name, cell(size_bytes, shape)))
                and ours
                and rate(samples) > rate(ours)
            ]
            if faster:
                yield f"{title}, {SHAPES[shape][2]}: {', '.join(faster)}"


def remarks(found: Comparison) -> Iterator[str]:
    """Yield remarks that a reader of the figures must know."""
    counts = [len(rows) for cells in found.samples.values() for rows in cells.values()]
    if counts:
        yield f"medians of {min(counts)} to {max(counts)} samples a cell"
    yield from found.notes
    for loss in losses(found):
        yield f"faster than {OURS}: {loss}"
    for name, reason in found.missing.items():
        yield f"{name} was left out: {reason}"
    for failure in found.failures:
        yield f"FAILED, and not counted: {failure}"
    for name, cells in found.samples.items():
        for where, samples in cells.items():
            if not any(sample.is_quiet for sample in samples):
                share = max(sample.others_cpu_share for sample in samples)
                yield f"{name}, {where}: DOUBTFUL, other processes used {share:.0%} of a core"
            if name != ECHO and min(each.load_cpu_share for each in samples) > LOAD_LIMITED_SHARE:
                yield f"{name}, {where}: the load generator was the limit"
