"""Extension modules, where they could be built; everything works without them, and slower.

``ROCKHOPPER_PURE_PYTHON=1`` in the environment turns all of them off.
"""

import os
from importlib import import_module
from typing import Any

MISSING: list[str] = []
"""The names of those that were asked for and are not there."""


def extent() -> str:
    """What is compiled, for the first log line."""
    if not MISSING:
        return "all"
    return f"all but {', '.join(sorted(MISSING))}: slower, no C compiler at installation"


def compiled(name: str) -> Any:
    """The extension module with that full name, or None."""
    if os.environ.get("ROCKHOPPER_PURE_PYTHON") != "1":
        try:
            return import_module(name)
        except ImportError:
            pass
    MISSING.append(name.rpartition(".")[2].lstrip("_"))
    return None
