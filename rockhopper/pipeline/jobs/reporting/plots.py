"""Plots as SVG inside a page: in the page's colours, light or dark, with real text.

matplotlib draws with placeholder colours; then ``var(--name)`` replaces them.
"""

import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERIES_MAX = 6
BARS_MIN = 14
_INK, _MUTED, _GRID = "#0a0b01", "#0a0b02", "#0a0b03"
_SERIES = [f"#0a0c{number:02x}" for number in range(1, SERIES_MAX + 2)]
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _GRID: "--line"}
_VARIABLES |= {colour: f"--s{number}" for number, colour in enumerate(_SERIES, 1)}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rockhopper",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "ytick.major.size": 0,
    "xtick.major.size": 3,
    "legend.frameon": False,
}


def stacked_bars(
    name: str, times_ms: Sequence[int], bucket_ms: int, series: Mapping[str, Sequence[float]]
) -> str:
    """Return amounts over time, one colour for each of *series*, the first at the bottom."""
    from matplotlib.dates import date2num

    def draw(axes: "Axes") -> None:
        at = date2num([_utc(ms + bucket_ms / 2) for ms in times_ms])  # type: ignore[no-untyped-call]
        bottom = [0.0] * len(times_ms)
        width = bucket_ms / 86_400_000 * 0.86
        for colour, (label, values) in zip(_SERIES, series.items(), strict=False):
            axes.bar(at, values, width, bottom=bottom, color=colour, label=label, linewidth=0)
            bottom = [low + value for low, value in zip(bottom, values, strict=True)]
        # A few bars keep a normal width and do not fill the plot.
        edge = bucket_ms / 86_400_000 * max(0.6, (BARS_MIN - len(at)) / 2)
        axes.set_xlim(at[0] - edge, at[-1] + edge)
        _time_axis(axes)

    return _draw(name, draw, legend=len(series) > 1)


def bars(name: str, labels: Sequence[str], values: Sequence[float]) -> str:
    """Return a plot with one bar for each label."""

    def draw(axes: "Axes") -> None:
        places = range(len(labels))
        axes.bar(places, values, 0.82, color=_SERIES[0], linewidth=0)
        step = max(1, -(-len(labels) // 16))
        axes.set_xticks(list(places)[::step], list(labels)[::step])

    return _draw(name, draw, height=2.5)


def lines(name: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return amounts over time as lines; a single value is a point."""

    def draw(axes: "Axes") -> None:
        for colour, (label, points) in zip(_SERIES, series.items(), strict=False):
            times: Any = [_utc(ms) for ms, _ in points]
            axes.plot(
                times,
                [value for _, value in points],
                color=colour,
                label=label,
                linewidth=1.8,
                marker="o",
                markersize=3.2 if len(points) < 60 else 0,
            )
        axes.set_ylim(bottom=0)
        _time_axis(axes)

    return _draw(name, draw, legend=True, height=2.7)


def shorten_number(value: float, biggest: float | None = None) -> str:
    """Format a number for a tile: ``1.2 M``, ``12,345``.

    On an axis, *biggest* sets a common unit.
    """
    top = abs(value if biggest is None else biggest)
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if top >= limit and value:
            scaled = value / limit
            return f"{scaled:,.0f} {unit}" if abs(scaled) >= 100 else f"{scaled:.3g} {unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _draw(name: str, draw: Any, *, legend: bool = False, height: float = 3.0) -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    with rc_context(_STYLE):
        figure = Figure(figsize=(10.2, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(axis="y", linewidth=0.8)
        top = axes.get_ylim()[1]
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shorten_number(value, top)))
        if legend:
            figure.legend(loc="outside upper left", ncols=4, handlelength=0.9, fontsize=9.5)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _for_page(name, text.getvalue())


def _time_axis(axes: "Axes") -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=4, maxticks=9, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def _for_page(name: str, svg: str) -> str:
    """Return only the ``svg`` element in a box, with unique ids, sized by the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return f'<div class="plot">{svg.strip()}</div>'


def _utc(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
