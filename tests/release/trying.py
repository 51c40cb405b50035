"""Install packages as a user does, with nothing around them, and run what was installed."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.release import installed, trial
from tests.release.building import CONSTRAINTS
from tests.release.places import Place

TRIAL, INSTALLED = Path(trial.__file__), Path(installed.__file__)


def try_package(place: Place, package: Path, compiled: str) -> list[dict[str, Any]]:
    """Install *package* in an environment of its own and try it.

    *compiled* is "all" or "none": which compiled parts must be there. Return what is installed
    there then (installed.py).
    """
    venv = f"try-{package.suffix[1:]}"
    for file in (package, TRIAL, CONSTRAINTS):
        shutil.copy(file, place.folder)
    tools = place.make_venv(venv, "--constraint", CONSTRAINTS.name, package.name)
    place.run(f"{tools}/python", "-P", TRIAL.name, compiled)
    return list_installed(place, tools)


def list_installed(place: Place, tools: str) -> list[dict[str, Any]]:
    """Return what is installed in the environment with the commands *tools*."""
    shutil.copy(INSTALLED, place.folder)
    printed = place.run(f"{tools}/python", "-P", INSTALLED.name)
    return [json.loads(line) for line in printed.splitlines()]
