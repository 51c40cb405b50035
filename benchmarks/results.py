"""The results of a run, and the files that store them: results/NAME.json.

A sample records its round, so that ratios compare samples of the same minutes. Older files have
neither `origin` nor `round`. They can be read too: all their samples belong to one round, and their
date is their name.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import ECHO, Case
from benchmarks.load import HERE, Sample
from benchmarks.origin import Origin

OURS = "Rockhopper"
DIRECTORY = HERE / "results"
OTHERS = ("spark-", "grpc-", "brokers-", "sizes-")
"""The prefixes of the names of other benchmarks' results."""


@dataclass(slots=True)
class Results:
    """All results of one run of the benchmark."""

    machine: str
    origin: Origin | None = None
    """None in older files."""
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    """The samples by server name, then by case name."""
    start_s: list[float] = field(default_factory=list)
    interpreter_start_s: list[float] = field(default_factory=list)
    libraries_start_s: list[float] = field(default_factory=list)
    """The same with the libraries of each broker; empty in older files."""
    idle_memory_mb: list[float] = field(default_factory=list)
    fdatasync_us: list[float] = field(default_factory=list)
    """The time of one fdatasync on the store's disk, before each case with SYNC_FLUSH."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The broker's own metrics of event-loop stalls: totals are summed, others are maxima."""

    def add(self, server: str, case: str, sample: Sample) -> None:
        """Add a sample."""
        self.samples.setdefault(server, {}).setdefault(case, []).append(sample)

    def of(self, server: str, case: str) -> list[Sample]:
        """Return the samples of one cell; the disturbed ones only if all were disturbed."""
        return _quiet(self.samples.get(server, {}).get(case, []))

    def peers(self) -> list[str]:
        """Return the names of the servers measured beside ours."""
        return [name for name in self.samples if name not in (OURS, ECHO.name)]

    def has_failures(self) -> bool:
        """Return whether our broker refused a request, or an answer was missing or foreign."""
        return any(sample.failures for server, _, sample in self.all() if server == OURS)

    def all(self) -> Iterator[tuple[str, str, Sample]]:
        """Yield every sample, with its server and its case."""
        for server, cases in self.samples.items():
            for case, samples in cases.items():
                for sample in samples:
                    yield server, case, sample

    def by_round(self, server: str, case: str) -> dict[int, list[Sample]]:
        """Return the samples of one cell by round; disturbed rounds only if all were disturbed."""
        found: dict[int, list[Sample]] = {}
        for sample in self.samples.get(server, {}).get(case, []):
            found.setdefault(sample.round, []).append(sample)
        quiet = {
            number: samples
            for number, samples in found.items()
            if any(sample.is_quiet for sample in samples)
        }
        return {number: _quiet(samples) for number, samples in (quiet or found).items()}

    def echo_ratios(self, case: Case) -> list[float]:
        """Return our messages per second over the echo's frames per second, one for each round.

        If the echo was disturbed, the echo of the other rounds replaces it.
        """
        echo = self.by_round(ECHO.name, case.echo)
        others = self.of(ECHO.name, case.echo)
        return [
            over(rate(samples), rate(echo.get(number, others)))
            for number, samples in self.by_round(OURS, case.name).items()
            if others
        ]

    def cpu_us(self, case: str) -> list[float]:
        """Return the CPU time of our broker per message, one for each round."""
        return [cpu_us(samples) for samples in self.by_round(OURS, case).values()]


def _quiet(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.is_quiet] or samples


def median(samples: Iterable[Sample], value: Callable[[Sample], float]) -> float:
    """Return the median of one figure over the rounds."""
    return statistics.median(map(value, samples))


def rate(samples: Iterable[Sample]) -> float:
    """Return the median of the messages per second."""
    return median(samples, lambda sample: sample.messages_per_s)


def cpu_us(samples: Iterable[Sample]) -> float:
    """Return the median of the server's CPU time per message, which noise affects least."""
    return median(samples, lambda sample: sample.cpu_us)


def over(value: float, other: float) -> float:
    """Return the ratio; NaN if there is nothing to compare with, which reaches no target."""
    return value / other if other else math.nan


def as_json(results: Results) -> str:
    """Return every sample, for programs."""
    return json.dumps(asdict(results), indent=1)


def from_json(text: str) -> Results:
    """Read the output of as_json() of this or an earlier version."""
    document: dict[str, Any] = json.loads(text)
    names = {each.name for each in dataclasses.fields(Results)}
    values = {name: value for name, value in document.items() if name in names}
    origin = values.pop("origin", None)
    samples = {
        server: {case: [Sample(**each) for each in rows] for case, rows in cases.items()}
        for server, cases in values.pop("samples").items()
    }
    return Results(**values, origin=Origin(**origin) if origin else None, samples=samples)


def read(name: str) -> Results:
    """Read results/NAME.json, or the file at a path."""
    path = Path(name)
    if path.suffix != ".json":
        path = DIRECTORY / f"{name}.json"
    return from_json(path.read_text())


def newest_first(directory: Path = DIRECTORY) -> Iterator[tuple[str, Results]]:
    """Yield all runs in *directory* with their names, without those of other benchmarks."""
    found = [
        (path.stem, from_json(path.read_text()))
        for path in directory.glob("*.json")
        if not path.name.startswith(OTHERS)
    ]
    yield from sorted(found, key=_date, reverse=True)


def _date(named: tuple[str, Results]) -> str:
    name, results = named
    return results.origin.date if results.origin else name
