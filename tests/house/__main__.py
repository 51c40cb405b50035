"""Compare measurements of the code with their bounds: ``python -m tests.house``, in ``make check``.

bounds.toml has, for each figure, its bound, the value before the restructuring, and the target. A
figure that is worse than its bound fails; a figure without a bound is only reported. ``--tighten``
writes better values into the file. To raise a bound, add a record in docs/decisions: ``raised`` is
its number. Record 0020 explains the figures. by_hand.toml has the figures that only a person can
measure, with the last result.
"""

import gc
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tests.house import traces
from tests.house.figures import measure
from tests.house.tree import Tree

ROOT = Path(__file__).parents[2]
BOUNDS = Path(__file__).with_name("bounds.toml")
BY_HAND = Path(__file__).with_name("by_hand.toml")


@click.command()
@click.option("--show", metavar="FIGURE", help="List the places that make up one figure.")
@click.option("--tighten", is_flag=True, help="Write better figures into bounds.toml.")
def main(show: str | None, tighten: bool) -> None:
    """Compare the figures of the house with their bounds."""
    figures = measure(Tree(ROOT), *traces.run(ROOT))
    if show:
        if show not in (names := [figure.name for figure in figures]):
            raise click.BadParameter(f"there are {', '.join(names)}", param_hint="--show")
        click.echo("\n".join(figures[names.index(show)].places))
        return
    bounds = tomllib.loads(BOUNDS.read_text())
    if gone := bounds.keys() - {figure.name for figure in figures}:
        raise click.ClickException(
            f"no figure is called {', '.join(sorted(gone))}, as rows of bounds.toml are"
        )
    worse = []
    click.echo(f"{'':20} {'':54} {'before':>7} {'now':>7} {'bound':>7} {'reach':>7}")
    for figure in figures:
        row = bounds.get(figure.name, {})
        bound = row.get("bound")
        values = (row.get("before"), figure.value, bound, row.get("reach"))
        click.echo(
            f"{figure.name:20} {figure.what:54}" + "".join(f" {_text(each):>7}" for each in values)
        )
        if bound is None:
            continue
        if is_worse(figure.value, row):
            worse.append(figure)
        elif tighten:
            row["bound"] = figure.value
    for name, row in tomllib.loads(BY_HAND.read_text()).items():
        click.echo(f"{name:20} {row['what']}: {row['now']}; reach {row['reach']}")
    if tighten:
        BOUNDS.write_text("\n".join(_row(name, row) for name, row in bounds.items()))
    for figure in worse:
        click.echo(
            f"{figure.what}: {_text(figure.value)}, and the bound is "
            f"{_text(bounds[figure.name]['bound'])}: python -m tests.house --show {figure.name}",
            err=True,
        )
    sys.exit(bool(worse))


def is_worse(value: float, row: Mapping[str, Any]) -> bool:
    """Return whether *value* is on the wrong side of the bound of its row."""
    bound: float = row["bound"]
    return value < bound if row.get("more_is_better") else value > bound


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if value % 1 else str(int(value))


def _row(name: str, row: Mapping[str, Any]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in row.items())


def _toml(value: float | str) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value)
    return _text(value)


if __name__ == "__main__":
    # Millions of nodes all stay until the end: garbage collection would take a third of the time.
    gc.disable()
    main()
