"""The results of a comparison of brokers."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.load import Sample
from benchmarks.origin import Origin

OURS = "Rockhopper"
FIGURES = "figures"
ECHO = "bare echo, frames of 200 bytes"
SIZES = {128: "128 B", 1024: "1 KiB"}
SHAPES = {
    "100x1": (100, 1, "100 x 1"),
    "4x64": (4, 64, "4 x 64"),
    "1x1": (1, 1, "1 x 1"),
    "4x1": (4, 1, "4 x 1"),
    "16x1": (16, 1, "16 x 1"),
    "1000x1": (1000, 1, "1,000 x 1"),
    "5000x1": (5000, 1, "5,000 x 1"),
    "batch": (4, 64, "batches of 32"),
    "pull": (4, 64, "pulls of 32"),
    "idle": (4, 64, "4 x 64 beside 1,000 idle connections"),
    "longpull": (4, 64, "parked pulls of one, and their sends"),
    "pop": (16, 64, "pops of 32, each acknowledged"),
    "half": (4, 64, "half messages, committed"),
}
"""Connections, requests in flight on each, and a heading; the most important first."""
SENDS = ("100x1", "4x64", "1x1", "4x1", "16x1", "1000x1", "5000x1", "idle")
"""The shapes of plain sends, which every broker has."""
BOTH_SIZES = ("1x1", "100x1", "4x64", "batch")
"""The shapes that are measured with both sizes; the others only with the smaller one."""
COLUMNS = ("1x1", "4x1", "16x1", "100x1", "1000x1", "5000x1", "4x64", "batch", "pull")
COLD_SHAPES = ("100x1", "4x64", "batch")
"""The shapes that are measured with cold pages too, where the protocol has them."""


def cell(size_bytes: int, shape: str, *, is_cold: bool = False) -> str:
    """Return the name of a cell of the tables."""
    return f"{size_bytes}-{shape}{'-cold' if is_cold else ''}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A broker that was measured."""

    name: str
    version: str
    settings: str
    is_synced: bool
    is_default: bool
    """Whether it is in the first tables, with all shapes."""
    promise: str = ""
    """What has happened to a message when its send is acknowledged."""


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """A Python client that was measured with one of the brokers."""

    broker: str
    library: str
    version: str
    ways: dict[str, str]
    """How each way is done, by its name."""

    @property
    def name(self) -> str:
        """The name of its row."""
        return f"{self.broker}, {self.library}"


@dataclass(frozen=True, slots=True)
class ClientSample:
    """One round of one way of using a Python client."""

    messages_per_s: float
    client_us: float
    """CPU time of the client's process per message, in microseconds."""
    server_us: float
    """CPU time of the broker per message."""
    p50_us: float = 0.0
    """Of a send, or from end to end; 0 if the way has no latency."""
    p99_us: float = 0.0


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
    clients: list[ClientEntry] = field(default_factory=list)
    client_samples: dict[str, dict[str, list[ClientSample]]] = field(default_factory=dict)
    """The samples of Python clients by the name of the row, then by way."""
    syncs_per_send: dict[str, float] = field(default_factory=dict)
    """How many calls that wait for the disk an acknowledged send has, one send at a time."""
    page_us: dict[str, list[float]] = field(default_factory=dict)
    """The time of the first touch of a page of memory: cold and warm."""
    command_s: dict[str, list[float]] = field(default_factory=dict)
    """The wall time of our command line, by its words."""
    missing: dict[str, str] = field(default_factory=dict)
    """Brokers and clients that are not installed here, and why."""
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


def middle_of(samples: Sequence[ClientSample], figure: str) -> float:
    """Return the median of one figure of a client's rounds."""
    return float(statistics.median(getattr(sample, figure) for sample in samples))


def as_json(found: Comparison, figures: Sequence[Mapping[str, object]] = ()) -> str:
    """Return every sample, for programs, and the rows of the table of figures."""
    return json.dumps(asdict(found) | {FIGURES: list(figures)}, indent=1)


def from_json(text: str) -> Comparison:
    """Read the output of as_json()."""
    document: dict[str, Any] = json.loads(text)
    document.pop(FIGURES, None)  # they come from the samples
    document["origin"] = Origin(**document["origin"])
    document["entries"] = [Entry(**each) for each in document["entries"]]
    document["clients"] = [ClientEntry(**each) for each in document.get("clients", [])]
    document["client_samples"] = {
        name: {way: [ClientSample(**each) for each in rows] for way, rows in ways.items()}
        for name, ways in document.get("client_samples", {}).items()
    }
    document["samples"] = {
        name: {cell: [Sample(**each) for each in rows] for cell, rows in cells.items()}
        for name, cells in document["samples"].items()
    }
    return Comparison(**document)
