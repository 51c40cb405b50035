"""The date, the machine and the versions of a run."""

import datetime
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import HERE

CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Origin:
    """The facts that are needed to compare a run with another."""

    date: str
    """The start of the run, ISO 8601, UTC."""
    cores: int
    cpu_model: str
    kernel: str
    python: str
    load_average: float
    """The load average of the last minute, at the start."""
    commit: str
    """The commit of our broker; empty outside of a git checkout."""
    is_dirty: bool
    """Whether the code that ran differs from that commit."""
    peer_version: str = ""
    """The version of Apache's broker; empty if it was not measured."""

    def text(self) -> str:
        """Return one line for people."""
        changed = ", changed" if self.is_dirty else ""
        commit = f"commit {self.commit[:10]}{changed}" if self.commit else "no commit"
        return (
            f"{self.date}, {commit}; {self.cores} cores of {self.cpu_model}, "
            f"Linux {self.kernel}, load {self.load_average:.1f} when it began."
        )


def here_and_now(peer_version: str) -> Origin:
    """Describe this machine and this checkout."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return Origin(
        date=now.isoformat(),
        cores=os.cpu_count() or 1,
        cpu_model=cpu_model(CPU_INFO.read_text()),
        kernel=platform.release(),
        python=platform.python_version(),
        load_average=os.getloadavg()[0],
        commit=_git("rev-parse", "HEAD"),
        is_dirty=bool(_git("status", "--porcelain", "--untracked-files=no")),
        peer_version=peer_version,
    )


def cpu_model(text: str) -> str:
    """Return the model from the text of /proc/cpuinfo, or the architecture if it names none."""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
