"""Brokers of a past release, beside those of the checkout."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.release.earlier import find_wheel
from tests.support.daemon import ROOT

LATEST = "0.2.0"
"""The newest release; the commit of a release sets it."""


def install(version: str, folder: Path) -> Path:
    """Install the release *version* in *folder*; return its Python.

    Its dependencies are those of this environment.
    """
    wheel = find_wheel(ROOT, version)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    subprocess.run([*pip, wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Python searches a path in a .pth file, but ignores the .pth files there, such as ours.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
