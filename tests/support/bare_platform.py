"""Remove what Windows lacks from this Python, then run the command line, or the broker's.

    python -m tests.support.bare_platform client send orders hello
    python -m tests.support.bare_platform broker --version

Before that, everything below `rockhopper.client` is imported. Parts of the standard library are
loaded first, because they have modules of their own for each system.
"""

import asyncio
import importlib
import os
import pkgutil
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from typing import Any, NoReturn

_LOADED_BEFORE = (subprocess, tempfile)
_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "uvloop")
_OF_OS = ("fdatasync", "pread", "pwrite", "posix_fallocate", "register_at_fork", "fork", "getuid")
_OF_SIGNAL = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH")
# Extras that need not be installed.
_EXTRAS = frozenset({"opentelemetry", "faststream", "pydantic", "msgpack"})


def _no_such_thing(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError


def _take_away() -> None:
    for name in _MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in (*_OF_OS, "O_DIRECTORY", "O_CLOEXEC", "sched_getaffinity"):
        if hasattr(os, name):
            delattr(os, name)
    for name in _OF_SIGNAL:
        delattr(signal, name)
    del select.poll
    for kind in (asyncio.SelectorEventLoop, *asyncio.SelectorEventLoop.__mro__[1:]):
        for name in ("add_signal_handler", "remove_signal_handler", "add_reader", "remove_reader"):
            if name in vars(kind):
                setattr(kind, name, _no_such_thing)


def _import_all(package: str) -> None:
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, f"{package}."):
        if found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _EXTRAS:
                raise


if __name__ == "__main__":
    _take_away()
    _import_all("rockhopper.client")
    side = sys.argv.pop(1)
    runpy.run_module(f"rockhopper.{side}", run_name="__main__", alter_sys=True)
