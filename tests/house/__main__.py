"""Measure the house and hold it to its bounds: ``python -m tests.house``; part of ``make check``.

bounds.toml has, for each figure, its bound, what it was before the house was rebuilt, and
what is to be reached. A figure that is worse than its bound fails; one without a bound is only
reported. ``--tighten`` writes better figures into the file.
"""

import sys
import tomllib
from pathlib import Path

import click

from tests.house.figures import Figure, measure
from tests.house.tree import Tree

ROOT = Path(__file__).parents[2]
BOUNDS = Path(__file__).with_name("bounds.toml")


@click.command()
@click.option("--show", metavar="FIGURE", help="List the places that make up one figure.")
@click.option("--tighten", is_flag=True, help="Write better figures into bounds.toml.")
def main(show: str | None, tighten: bool) -> None:
    """Compare the figures of the house with their bounds."""
    figures = measure(Tree(ROOT), ROOT)
    if show:
        if show not in (names := [figure.name for figure in figures]):
            raise click.BadParameter(f"there are {', '.join(names)}", param_hint="--show")
        click.echo("\n".join(figures[names.index(show)].places))
        return
    bounds = tomllib.loads(BOUNDS.read_text())
    worse = []
    click.echo(f"{'':54} {'before':>7} {'now':>7} {'bound':>7} {'reach':>7}")
    for figure in figures:
        row = bounds[figure.name]
        bound = row.get("bound")
        figures_of_row = (row.get("before"), figure.value, bound, row.get("reach"))
        click.echo(f"{figure.what:54}" + "".join(f" {_text(each):>7}" for each in figures_of_row))
        if bound is None:
            continue
        if is_worse(figure, bound):
            worse.append(figure)
        elif tighten:
            row["bound"] = figure.value
    if tighten:
        BOUNDS.write_text("".join(_row(name, row) for name, row in bounds.items()))
    for figure in worse:
        click.echo(
            f"{figure.what}: {_text(figure.value)}, and the bound is "
            f"{_text(bounds[figure.name]['bound'])}: python -m tests.house --show {figure.name}",
            err=True,
        )
    sys.exit(bool(worse))


def is_worse(figure: Figure, bound: float) -> bool:
    """Whether *figure* is on the wrong side of *bound*."""
    return figure.value < bound if figure.more_is_better else figure.value > bound


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if value % 1 else str(int(value))


def _row(name: str, row: dict[str, float]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {_text(row[key])}\n" for key in row) + "\n"


if __name__ == "__main__":
    main()
