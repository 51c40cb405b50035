"""The page of a report: one HTML file without external resources."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

import pyarrow as pa

from rockhopper.page_style import CSS
from rockhopper.pipeline.jobs.reporting import plots
from rockhopper.pipeline.jobs.reporting.plots import SERIES_MAX, shorten_number
from rockhopper.pipeline.jobs.reporting.tallies import HOUR_MS, MINUTE_MS, Tables
from rockhopper.pipeline.jobs.results import format_count, format_size

ROWS_MAX = 12
BARS_MAX = 110
DAY_MS = 24 * HOUR_MS
_BUCKETS = {
    MINUTE_MS: "minute",
    5 * MINUTE_MS: "5 minutes",
    15 * MINUTE_MS: "15 minutes",
    HOUR_MS: "hour",
    6 * HOUR_MS: "6 hours",
    DAY_MS: "day",
    7 * DAY_MS: "week",
    28 * DAY_MS: "4 weeks",
    364 * DAY_MS: "year",
}
_NONE = '<span class="none">none</span>'
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Facts:
    """The contents of the page."""

    source: str
    made_ms: int
    counted: Tables
    lag: pa.Table
    """All samples, newest last; empty if no broker was queried."""


def page(facts: Facts) -> str:
    """Return the HTML file."""
    queues: list[Row] = facts.counted["queues"].to_pylist()
    title = f"Traffic of {facts.source}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{_period(facts)} Made {_time(facts.made_ms)}; all times are UTC.</p>',
        _tiles(facts, queues),
    ]
    if queues:
        body += [
            _traffic(facts.counted["times"].to_pylist()),
            _topics(queues),
            _lag(facts.lag),
            _tags(facts.counted["tags"].to_pylist()),
            _sizes(facts.counted["sizes"].to_pylist()),
            _producers(facts.counted["producers"].to_pylist()),
        ]
    else:
        body += [_section("No messages", "There is nothing to count here.", []), _lag(facts.lag)]
    body.append(
        "<footer>Made by <code>python -m rockhopper.pipeline report</code>. "
        "The tables behind this page are in the files beside it.</footer>"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _period(facts: Facts) -> str:
    times = facts.counted["times"]["timeMs"].to_pylist()
    if not times:
        return ""
    last = max(facts.counted["queues"]["lastMs"].to_pylist())
    return f"From {_time(min(times))} to {_time(last)}."


def _tiles(facts: Facts, queues: Sequence[Row]) -> str:
    messages = sum(row["messages"] for row in queues)
    size = sum(row["bytes"] for row in queues)
    hosts = {row["host"] for row in facts.counted["producers"].to_pylist()}
    tiles = [
        (shorten_number(messages), "messages"),
        (format_size(size), "of bodies"),
        _format_count(len({row["topic"] for row in queues}), "topic", "topics"),
        _format_count(len(hosts), "host that produces", "hosts that produce"),
    ]
    if messages:
        tiles.insert(2, (format_size(round(size / messages)), "mean size"))
    newest = _find_newest(facts.lag)
    if newest:
        tiles.append((shorten_number(sum(row["lag"] for row in newest)), "messages of lag"))
    inner = "".join(
        f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _format_count(count: int, one: str, many: str) -> tuple[str, str]:
    return f"{count:,}", one if count == 1 else many


def _bucket(times: Sequence[Row], span_ms: int) -> int:
    """Return the shortest bucket that divides the span into few enough bars."""
    is_by_hour = all(row["timeMs"] % HOUR_MS == 0 for row in times) and span_ms > 0
    for each in _BUCKETS:
        if span_ms / each < BARS_MAX and not (is_by_hour and each < HOUR_MS):
            return each
    return 364 * DAY_MS


def _traffic(times: Sequence[Row]) -> str:
    first, last = min(row["timeMs"] for row in times), max(row["timeMs"] for row in times)
    bucket = _bucket(times, last - first)
    totals: dict[str, int] = defaultdict(int)
    for row in times:
        totals[row["topic"]] += row["messages"]
    named = sorted(totals, key=lambda topic: (-totals[topic], topic))
    shown = named if len(named) <= SERIES_MAX + 1 else named[:SERIES_MAX]
    at = list(range(first // bucket * bucket, last + 1, bucket))
    series = {name: [0.0] * len(at) for name in shown}
    if len(shown) < len(named):
        series[f"{len(named) - len(shown)} others"] = [0.0] * len(at)
    others = next(reversed(series))
    for row in times:
        place = (row["timeMs"] - at[0]) // bucket
        name = row["topic"] if row["topic"] in series else others
        series[name][place] += row["messages"]
    note = f"Messages per {_BUCKETS[bucket]}, by topic."
    return _section("Traffic", note, [plots.stacked_bars("traffic", at, bucket, series)])


def _topics(queues: Sequence[Row]) -> str:
    topics: dict[str, list[Row]] = defaultdict(list)
    for row in queues:
        topics[row["topic"]].append(row)
    rows = [
        {
            "name": name,
            "messages": sum(row["messages"] for row in parts),
            "bytes": sum(row["bytes"] for row in parts),
            "queues": len(parts),
            "skew": max(row["messages"] for row in parts)
            / (sum(row["messages"] for row in parts) / len(parts)),
            "last": max(row["lastMs"] for row in parts),
        }
        for name, parts in topics.items()
    ]
    extra: list[_Column] = [
        ("queues", "number wide", lambda row: f"{row['queues']:,}"),
        ("fullest queue", "number wide", lambda row: f"{row['skew']:.1f} × mean"),
        ("newest message", "number wide", lambda row: _time(row["last"])),
    ]
    return _section("Topics", "", [_rank(rows, "topic", extra)])


def _tags(tags: Sequence[Row]) -> str:
    rows = [{**row, "name": f"{row['topic']} · {row['tag'] or 'no tag'}"} for row in tags]
    if all(row["tag"] is None for row in tags):
        return ""
    return _section("Tags", "", [_rank(rows, "topic · tag", [])])


def _producers(producers: Sequence[Row]) -> str:
    by_client: dict[tuple[str, str], dict[str, Any]] = {}
    for row in producers:
        key = (row["host"] or "unknown host", row["pid"] or "")
        pid = f" · process {int(key[1], 16)}" if key[1] else ""
        into = by_client.setdefault(
            key, {"name": key[0] + pid, "messages": 0, "bytes": 0, "topics": 0}
        )
        for name in ("messages", "bytes"):
            into[name] += row[name]
        into["topics"] += 1
    extra: list[_Column] = [("topics", "number wide", lambda row: f"{row['topics']:,}")]
    note = (
        "By the host a message was born on; the process (its low 16 bits) is told from the "
        "message's id, where the producer made one."
    )
    return _section("Producers", note, [_rank(list(by_client.values()), "client", extra)])


def _sizes(sizes: Sequence[Row]) -> str:
    counts: dict[int, int] = defaultdict(int)
    for row in sizes:
        counts[int(row["size"]).bit_length()] += row["messages"]
    buckets = range(min(counts), max(counts) + 1)
    labels = [_size_label(bits) for bits in buckets]
    ordered = sorted((row["size"], row["messages"]) for row in sizes)
    quantiles = " · ".join(
        f"{name} {format_size(_quantile(ordered, share))}"
        for name, share in (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99), ("largest", 1.0))
    )
    note = (
        "Messages by the size of the body as it is stored, each bar from the size below it up to "
        f"twice as much: {quantiles}."
    )
    return _section(
        "Sizes", note, [plots.bars("sizes", labels, [counts[bits] for bits in buckets])]
    )


def _size_label(bits: int) -> str:
    """Return the lower bound of a bucket."""
    low = 1 << (bits - 1) if bits else 0
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if low >> shift:
            return f"{low >> shift} {unit}"
    return f"{low} B"


def _quantile(ordered: Sequence[tuple[int, int]], share: float) -> int:
    wanted = share * sum(count for _, count in ordered)
    seen = 0
    for size, count in ordered:
        seen += count
        if seen >= wanted:
            return size
    return ordered[-1][0]


def _lag_rows(newest: Iterable[Row], now_ms: int) -> list[Row]:
    """Return a row for each group and topic."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in newest:
        by_name[_lag_name(row)].append(row)
    return [
        {
            "name": name,
            "messages": sum(row["lag"] for row in parts),
            "queues": len(parts),
            "age": _age(parts, now_ms),
        }
        for name, parts in by_name.items()
    ]


def _lag(samples: pa.Table) -> str:
    newest = _find_newest(samples)
    if not newest:
        return ""
    by_name: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in samples.to_pylist():
        by_name[_lag_name(row)][_ms(row["sampledAt"])] += row["lag"]
    moments = sorted({ms for points in by_name.values() for ms in points})
    parts: list[str] = []
    if len(moments) > 1:
        top = sorted(by_name, key=lambda name: -max(by_name[name].values()))[:SERIES_MAX]
        parts.append(plots.lines("lag", {name: sorted(by_name[name].items()) for name in top}))
    columns: list[_Column] = [
        ("queues", "number wide", lambda row: f"{row['queues']:,}"),
        ("oldest consumed", "number wide", lambda row: str(row["age"])),
    ]
    rows = _lag_rows(newest, moments[-1])
    parts.append(_rank(rows, "group · topic", columns, what="lag", has_size=False))
    note = f"Messages that groups have not consumed, in {format_count(len(moments), 'sample')}"
    note += " so far." if len(moments) > 1 else "; each further report adds one, and a plot."
    return _section("Consumers' lag", note, parts)


def _lag_name(row: Row) -> str:
    return f"{row['group']} · {row['topic']}"


def _age(parts: Sequence[Row], now_ms: int) -> str:
    """Return the age of the last consumed message, for the slowest queue with lag."""
    behind = [row["lastConsumedAt"] for row in parts if row["lag"]]
    if not behind:
        return "up to date"
    if None in behind:
        return "–"
    seconds = max((now_ms - _ms(at)) / 1000 for at in behind)
    for limit, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{seconds / limit:.1f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def _find_newest(samples: pa.Table) -> list[Row]:
    rows: list[Row] = samples.to_pylist()
    last = max((row["sampledAt"] for row in rows), default=None)
    return [row for row in rows if row["sampledAt"] == last]


_Column = tuple[str, str, Callable[[Any], str]]


def _rank(
    rows: Sequence[Row],
    title: str,
    extra: Sequence[_Column],
    *,
    what: str = "messages",
    has_size: bool = True,
) -> str:
    """Return a table sorted by size, with a bar for each row; further rows are folded."""
    ordered = sorted(rows, key=lambda row: (-row["messages"], row["name"]))
    biggest = max((row["messages"] for row in ordered), default=0) or 1
    total = sum(row["messages"] for row in ordered) or 1
    columns: list[_Column] = [
        (title, "", lambda row: escape(row["name"])),
        (what, "number", lambda row: f"{row['messages']:,}"),
        ("", "share", lambda row: _bar(row["messages"] / biggest)),
        ("share", "number wide", lambda row: f"{row['messages'] / total:.1%}"),
    ]
    if has_size:
        columns.append(("bodies", "number", lambda row: format_size(row["bytes"])))
    columns += extra
    text = _table(ordered[:ROWS_MAX], columns)
    if len(ordered) > ROWS_MAX:
        rest = ordered[ROWS_MAX : ROWS_MAX * 20]
        text += f"<details><summary>{len(ordered) - ROWS_MAX:,} more</summary>"
        text += _table(rest, columns) + "</details>"
    return text


def _bar(share: float) -> str:
    if share <= 0:
        return '<span class="track"></span>'
    return f'<span class="track"><i style="width:{share:.1%}"></i></span>'


def _table(rows: Iterable[Row], columns: Sequence[_Column]) -> str:
    head = "".join(f'<th class="{kind}">{escape(title)}</th>' for title, kind, _ in columns)
    lines = [
        "<tr>" + "".join(f'<td class="{kind}">{show(row)}</td>' for _, kind, show in columns)
        for row in rows
    ]
    inner = "</tr>".join(lines)
    return f'<div class="scroll"><table><tr>{head}</tr>{inner}</tr></table></div>'


def _section(title: str, note: str, parts: Sequence[str]) -> str:
    return (
        f'<section><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>'
        + "".join(parts)
        + "</section>"
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%-d %b %Y, %H:%M")
