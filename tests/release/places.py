"""Where packages are built and tried: Debians in folders (.ci/debian), or this machine.

Each place has a *folder* that commands are run in, by relative paths.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
IN_DEBIAN = "release"
LAST_LINES = 30
_HERE_ALONE = (
    *("PYTHON", "PYTEST", "COV_", "VIRTUAL_ENV", "ROCKHOPPER"),
    *("AR", "CC", "CFLAGS", "CPPFLAGS", "CXX", "LDFLAGS", "LDSHARED", "OPT"),
)
"""Beginnings of variables that must not change what is built."""


class ReleaseError(Exception):
    """A sentence that says why nothing is released."""


@dataclass(frozen=True)
class Place:
    """One Python, and a folder to work in."""

    name: str
    folder: Path
    python: str
    prefix: tuple[str, ...] = ()
    """What a command is run by."""

    @property
    def is_debian(self) -> bool:
        """Whether it is one of .ci/debian."""
        return bool(self.prefix)

    def emptied(self) -> "Place":
        """Return it without what an earlier release left in its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def run(self, *command: str, **environment: str) -> str:
        """Run *command* in the folder; what it printed. Raises ReleaseError if it fails."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(_HERE_ALONE)
        }
        done = subprocess.run(
            [*self.prefix, *command],
            cwd=ROOT if self.prefix else self.folder,
            env={**inherited, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
            capture_output=True,
            text=True,
            umask=0o022,  # auditwheel packs folders with their modes
        )
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
            raise ReleaseError(f"{' '.join(command)} failed in {self.name}:\n{last}")
        return done.stdout

    def make_venv(self, name: str, *requirements: str) -> str:
        """Make a virtual environment with *requirements*; the path of its folder of commands."""
        self.run(self.python, "-m", "venv", name)
        self.run(f"{name}/bin/pip", "install", "--quiet", *requirements)
        return f"{name}/bin"


def debian(name: str) -> Place:
    """The Debian that .ci/debian calls *name*; set up if it is not there."""
    script = ROOT / ".ci" / "debian"
    done = subprocess.run([script, name, "true"], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise ReleaseError(f"{done.stderr.rstrip()}\nwithout Debians: make release SUITES=")
    prefix = (str(script), name, "env", f"--chdir=/{IN_DEBIAN}")
    return Place(name, ROOT / "build" / "debian" / name / IN_DEBIAN, "python3", prefix)


def here(python: str, name: str = "here") -> Place:
    """Return this machine, with the interpreter *python*."""
    return Place(name, ROOT / "build" / "release" / name, python)
