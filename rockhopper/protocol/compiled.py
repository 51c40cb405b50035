"""Extension modules, where they could be built; everything works without them, and slower.

``ROCKHOPPER_PURE_PYTHON=1`` in the environment turns all of them off.
"""

import os
import shutil
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any

MISSING: list[str] = []
"""The names of those that were asked for and are not there."""
FOUND: list[str] = []
"""The names of those that are."""
SWITCH = "ROCKHOPPER_PURE_PYTHON"


def extent() -> str:
    """What is compiled, and what to do about the rest, for the first log line."""
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


def compiled(name: str) -> Any:
    """The extension module with that full name, or None."""
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
