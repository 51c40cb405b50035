"""Brokers of a release that was made, beside those of the checkout."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.release.earlier import find_wheel
from tests.support.daemon import ROOT

LATEST = "0.2.0"
"""The newest release: a release's own commit sets it."""


def install(version: str, folder: Path) -> Path:
    """Install the release *version* in *folder*; its Python.

    Its dependencies are those of this environment.
    """
    wheel = find_wheel(ROOT, version)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    subprocess.run([*pip, wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A path in a .pth file is searched, but the .pth files there, as our editable one, are not.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
