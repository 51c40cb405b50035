"""The report of a comparison of brokers: results/brokers-DATE.md and .json."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.brokers import figures
from benchmarks.brokers.clients.client import LIVE, ONE, WAYS
from benchmarks.brokers.results import (
    COLD_SHAPES,
    COLUMNS,
    ECHO,
    OURS,
    SHAPES,
    SIZES,
    ClientSample,
    Comparison,
    as_json,
    cell,
    middle_of,
)
from benchmarks.load import Sample
from benchmarks.report import LOAD_LIMITED_SHARE, table
from benchmarks.results import DIRECTORY, cpu_us, median, rate

CLIENT = "rockhopper"
"""The name of our Python client, which Apache's broker is measured with, too."""


def save(found: Comparison, name: str, directory: Path = DIRECTORY) -> list[Path]:
    """Write the report and the samples to NAME.md and NAME.json."""
    report, data = directory / f"{name}.md", directory / f"{name}.json"
    report.write_text(render(found))
    data.write_text(as_json(found, figures.as_documents(found)) + "\n")
    return [report, data]


def render(found: Comparison) -> str:
    """Return the whole report."""
    parts = [found.origin.text(), found.machine]
    if goals := figures.render(found):
        parts += ["The figures to reach, and the same of each broker:", goals]
    return "\n\n".join([*parts, compare(found)])


def compare(found: Comparison) -> str:
    """Return the report without the machine and the figures to reach."""
    parts: list[str] = []
    defaults = [each.name for each in found.entries if each.is_default]
    for size_bytes, title in SIZES.items():
        parts.append(
            f"Acknowledged sends of {title}, thousands a second (connections x requests in flight):"
        )
        parts.append(_rates(found, [*defaults, ECHO], size_bytes))
    if cold := _cold(found, defaults):
        parts += [_describe_pages(found), cold]
    parts += ["One send of 128 B, and the process:", _costs(found, defaults)]
    if found.clients:
        parts += [
            "Python clients: thousands a second, CPU us a message of the client, and of the "
            "broker; where one message waits for its answer, p50 and p99 in ms instead:",
            _clients(found),
            _ways(found),
        ]
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


def _rates(
    found: Comparison,
    names: list[str],
    size_bytes: int,
    shapes: Sequence[str] = COLUMNS,
    *,
    is_cold: bool = False,
) -> str:
    """Return a table without the shapes and brokers that nothing is known of."""
    known = [
        shape
        for shape in shapes
        if any(found.of(name, cell(size_bytes, shape, is_cold=is_cold)) for name in names)
    ]
    rows = [[f"k/s, {SIZES[size_bytes]}", *(SHAPES[shape][2] for shape in known)]]
    for name in names:
        cells = [_rate(found.of(name, cell(size_bytes, shape, is_cold=is_cold))) for shape in known]
        if any(cells):
            rows.append([name, *cells])
    return table(rows)


def _cold(found: Comparison, names: list[str]) -> str:
    """Return the rates with cold pages over those with warm ones."""
    rows = [
        ["1 KiB, cold pages", *(f"{SHAPES[shape][2]}|of warm" for shape in COLD_SHAPES)],
    ]
    rows = [[word for cell_text in rows[0] for word in cell_text.split("|")]]
    for name in names:
        row = [name]
        for shape in COLD_SHAPES:
            cold = found.of(name, cell(1024, shape, is_cold=True))
            warm = found.of(name, cell(1024, shape))
            row += [_rate(cold), f"{rate(cold) / rate(warm):.2f}" if cold and warm else ""]
        if any(row[1:]):
            rows.append(row)
    return table(rows) if len(rows) > 1 else ""


def _describe_pages(found: Comparison) -> str:
    """Return how cold and warm pages were made, and what the first touch of one cost."""
    costs = [
        f"{statistics.median(values):.2f} us ({name})" for name, values in found.page_us.items()
    ]
    return (
        "Thousands a second on cold pages. Cold: right after the broker's start in an empty "
        "directory, with memory that nothing has prepared. Warm, as in all other tables: before "
        "each cell the page cache was filled with a file of no process, so that every page that a "
        "broker takes has been used before. The first touch of a page took "
        f"{', '.join(costs) or 'an unknown time'}."
    )


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


def _clients(found: Comparison) -> str:
    known = [way for way in WAYS if any(way in rows for rows in found.client_samples.values())]
    rows = [["", *(WAYS[way] for way in known)]]
    for entry in found.clients:
        samples = found.client_samples.get(entry.name, {})
        rows.append([entry.name, *(_client_cell(way, samples.get(way, [])) for way in known)])
    return table(rows)


def _client_cell(way: str, samples: list[ClientSample]) -> str:
    if not samples:
        return ""
    first = _number(middle_of(samples, "messages_per_s") / 1000)
    if way in (ONE, LIVE):
        p50_ms, p99_ms = (middle_of(samples, each) / 1000 for each in ("p50_us", "p99_us"))
        first = f"{p50_ms:.2f} / {p99_ms:.2f} ms"
    return f"{first}, {middle_of(samples, 'client_us'):.2f}, {middle_of(samples, 'server_us'):.2f}"


def _ways(found: Comparison) -> str:
    rows = [["client", "version", "how"]]
    for entry in found.clients:
        how = "; ".join(f"{WAYS[way]}: {text}" for way, text in entry.ways.items())
        rows.append([entry.name, entry.version, how])
    return table(rows)


def _settings(found: Comparison) -> str:
    rows = [["broker", "version", "an acknowledged message is", "fsyncs a send", "settings"]]
    for each in found.entries:
        syncs = found.syncs_per_send.get(each.name)
        counted = "" if syncs is None else f"{syncs:.3f}"
        rows.append([each.name, each.version, each.promise, counted, each.settings])
    if not any(row[2] for row in rows[1:]):  # a run of an earlier version
        rows = [[row[0], row[1], row[4]] for row in rows]
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


def clients_ahead(found: Comparison) -> Iterator[str]:
    """Yield the ways of use in which another broker's Python client is ahead of ours."""
    ours = found.client_samples.get(f"{OURS}, {CLIENT}", {})
    for way, title in WAYS.items():
        our_figure = _client_figure(way, ours.get(way, []))
        ahead = []
        for name, ways in found.client_samples.items():
            figure = _client_figure(way, ways.get(way, []))
            if not name.endswith(f", {CLIENT}") and our_figure and figure > 1.05 * our_figure:
                ahead.append(f"{name} ({figure / our_figure:.1f} times)")
        if ahead:
            yield f"{title}: {', '.join(ahead)}"


def _client_figure(way: str, samples: list[ClientSample]) -> float:
    """Return a number of which more is better; 0 without samples."""
    if not samples:
        return 0.0
    if way in (ONE, LIVE):
        return 1 / middle_of(samples, "p50_us")
    return middle_of(samples, "messages_per_s")


def remarks(found: Comparison) -> Iterator[str]:
    """Yield remarks that a reader of the figures must know."""
    counts = [len(rows) for cells in found.samples.values() for rows in cells.values()]
    if counts:
        yield f"medians of {min(counts)} to {max(counts)} samples a cell"
    yield from found.notes
    for loss in losses(found):
        yield f"faster than {OURS}: {loss}"
    for way in clients_ahead(found):
        yield f"Python clients ahead of ours: {way}"
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
