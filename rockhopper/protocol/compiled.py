"""Loads the compiled extension modules. They are optional: without them all works, but slower.

``ROCKHOPPER_PURE_PYTHON=1`` in the environment disables all of them.
"""

import os
import shutil
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any

MISSING: list[str] = []
"""The names of the modules that were requested and not found."""
FOUND: list[str] = []
"""The names of the modules that were found."""
SWITCH = "ROCKHOPPER_PURE_PYTHON"


def extent() -> str:
    """Return what is compiled and how to get the rest, for the first log line."""
    if not MISSING:
        return "all"
    extent = f"all but {', '.join(sorted(MISSING))}" if FOUND else "none"
    return f"{extent}: slower; {_reason()}"


def _reason() -> str:
    if os.environ.get(SWITCH) == "1":
        return f"{SWITCH}=1 is set"
    include = Path(sysconfig.get_path("include"))
    if shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) is None:
        return "there is no C compiler here: install one (gcc), then rockhopper again"
    if not (include / "Python.h").exists():
        return f"{include}/Python.h is missing: install python3-dev, then rockhopper again"
    return "install rockhopper again to compile them"


def import_compiled(name: str) -> Any:
    """Return the extension module with this full name, or None."""
    short = name.rpartition(".")[2].lstrip("_")
    if os.environ.get(SWITCH) != "1":
        try:
            module = import_module(name)
        except ImportError:
            pass
        else:
            FOUND.append(short)
            return module
    MISSING.append(short)
    return None
