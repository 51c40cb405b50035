"""Render the results of the demo as a page."""

from collections.abc import Sequence
from html import escape

from rockhopper.page_style import CSS
from rockhopper.pipeline.jobs.demonstrating.words import WINDOW_S, WordCounts
from rockhopper.pipeline.jobs.reporting import plots
from rockhopper.pipeline.jobs.reporting.plots import SERIES_MAX

TOP = 15


def page(counts: WordCounts, facts: Sequence[tuple[str, str]], checks: Sequence[str]) -> str:
    """Return the HTML file; *facts* are values with their labels."""
    window_ms = WINDOW_S * 1000
    starts = sorted({start for start, _ in counts.by_window})
    totals = counts.totals()
    named = [word for word, _ in totals.most_common(SERIES_MAX)]
    plot = ""
    if starts:
        at = list(range(starts[0], starts[-1] + 1, window_ms))
        series = {
            word: [float(counts.by_window.get((start, word), 0)) for start in at] for word in named
        }
        plot = plots.stacked_bars("words", at, window_ms, series)
    most = totals.most_common(TOP)
    rows = "".join(
        f'<tr><td>{escape(word)}</td><td class="number">{times:,}</td>'
        f'<td class="share"><span class="track"><i style="width:{times / most[0][1]:.1%}"></i>'
        "</span></td></tr>"
        for word, times in most
    )
    tiles = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what in facts
    )
    checked = "".join(f"<tr><td>✓ {escape(check)}</td></tr>" for check in checks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Rockhopper and Spark</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        "<h1>Python's reference, streamed through a broker into Spark</h1>"
        '<p class="sub">Counted while it arrived, archived as Parquet, replayed into a second '
        "topic.</p>"
        f'<div class="tiles">{tiles}</div>'
        "<section><h2>Words as they arrived</h2>"
        f'<p class="note">How often the {len(named)} most frequent words of four letters or more '
        f"came, in windows of {WINDOW_S} s.</p>{plot}</section>"
        f'<section><h2>Most frequent words</h2><p class="note"></p><table>{rows}</table></section>'
        f'<section><h2>Checked</h2><p class="note"></p><table>{checked}</table></section>'
        "<footer>Made by <code>python -m rockhopper.pipeline demo</code>.</footer>"
        "\n</main>\n</body>\n</html>\n"
    )
