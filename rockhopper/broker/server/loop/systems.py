"""The supported system is Linux; on others, the log lists what is missing."""

import importlib
import os
import sys


def refusal() -> str | None:
    """Return why no broker can run here, as a sentence; None if it can."""
    missing = [f"module {name}" for name in ("fcntl", "resource") if not _has(name)]
    missing += [f"os.{name}" for name in ("pread", "pwrite") if not hasattr(os, name)]
    if not missing:
        return None
    return (
        f"this system ({sys.platform}) lacks {', '.join(missing)}, which a store needs: run "
        "the broker on Linux, the supported system (also in a container, a virtual machine or "
        "WSL 2); the client, `rockhopper`, works here"
    )


def shortcomings() -> list[str]:
    """Return a sentence for each shortcoming of this operating system."""
    found = []
    if sys.platform != "linux":
        found.append(
            f"this system is {sys.platform}, but only Linux is supported: the effects of a power "
            "cut or a full disk are not tested elsewhere"
        )
    if not hasattr(os, "posix_fallocate"):
        found.append(
            "this system has no posix_fallocate: new files are filled with zeros instead, which "
            "takes longer"
        )
    if not _has("uvloop"):
        found.append(
            "uvloop is not installed: the broker runs on asyncio's own event loop, which is slower"
        )
    return found


def _has(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
