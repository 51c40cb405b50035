"""Loads the compiled extension modules. They are optional: without them all works, but slower.

``ROCKHOPPER_PURE_PYTHON=1`` in the environment disables all of them.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

MISSING: list[str] = []
"""The names of the modules that were requested and not found."""
FOUND: list[str] = []
"""The names of the modules that were found."""
SWITCH = "ROCKHOPPER_PURE_PYTHON"
SLACK_S = 10
"""A copy of a checkout may give a source a later time than its module, but not by more."""


class StaleModuleError(ImportError):
    """An extension module in a checkout is older than its sources."""


def extent() -> str:
    """Return what is compiled and how to get the rest, for the first log line."""
    if not MISSING:
        return "all"
    extent = f"all but {', '.join(sorted(MISSING))}" if FOUND else "none"
    return f"{extent}: slower; {_reason()}"


def _reason() -> str:
    if os.environ.get(SWITCH) == "1":
        return f"{SWITCH}=1 is set"
    import shutil
    import sysconfig

    include = Path(sysconfig.get_path("include"))
    if shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) is None:
        return "there is no C compiler here: install one (gcc), then rockhopper again"
    if not (include / "Python.h").exists():
        return f"{include}/Python.h is missing: install python3-dev, then rockhopper again"
    return "install rockhopper again to compile them; `pip install -v` shows why that fails"


def import_compiled(name: str) -> Any:
    """Return the extension module with this full name, or None.

    Raises:
        StaleModuleError: it was compiled from earlier sources, and may not fit the Python code.
    """
    short = name.rpartition(".")[2].lstrip("_")
    if os.environ.get(SWITCH) != "1":
        try:
            module = import_module(name)
        except ImportError:
            pass
        else:
            _refuse_stale(name, getattr(module, "__file__", None))
            FOUND.append(short)
            return module
    MISSING.append(short)
    return None


def _refuse_stale(name: str, file: str | None) -> None:
    """Compare the time of a module with those of the C sources beside it; a wheel has none."""
    if file is None:
        return
    folder = os.path.dirname(file)
    limit_s = os.stat(file).st_mtime + SLACK_S
    with os.scandir(folder) as entries:
        newer = [
            entry.path
            for entry in entries
            if entry.name.endswith((".c", ".h")) and entry.stat().st_mtime > limit_s
        ]
    if newer:
        own = os.path.join(folder, f"{name.rpartition('.')[2]}.c")
        source = own if own in newer else min(newer)
        checkout = os.path.abspath(os.path.join(folder, *[os.pardir] * name.count(".")))
        raise StaleModuleError(
            f"cannot use {file}: it was compiled before {source} changed; compile it again "
            f"with `{sys.executable} -m pip install --no-deps -e {checkout}`, or set {SWITCH}=1 to "
            "run without compiled code, which is slower"
        )
