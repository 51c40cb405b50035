"""Workshop: the directory in which faults are made, and everything that must be removed afterwards.

``<temporary>/rockhopper-chaos-<random>`` has a file ``lock``, which is locked while its process
lives. The next run cleans up the directories of killed runs: their mounts, the processes that have
them on their command line, and their files.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.interop import apache
from tests.interop.etcd import binary as etcd_binary

PREFIX = "rockhopper-chaos-"
LOCKED_WITHIN_S = 60.0
"""A directory of this age is locked, or abandoned."""
FAKETIME = next(Path("/usr").glob("lib*/*/faketime/libfaketimeMT.so.1"), None)

NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "root": (lambda: os.geteuid() == 0, "to be root"),
    "loop": (lambda: Path("/dev/loop-control").exists(), "loop devices"),
    "xfs": (lambda: shutil.which("mkfs.xfs") is not None, "mkfs.xfs (apt-get install xfsprogs)"),
    "ext4": (lambda: shutil.which("mkfs.ext4") is not None, "mkfs.ext4 (the package e2fsprogs)"),
    "etcd": (lambda: etcd_binary() is not None, "etcd (apt-get install etcd-server)"),
    "strace": (lambda: shutil.which("strace") is not None, "strace (apt-get install strace)"),
    "java": (lambda: not apache.missing_tools(), "a JDK and Maven"),
    "faketime": (lambda: FAKETIME is not None, "libfaketime (apt-get install faketime)"),
}


def missing(needs: tuple[str, ...]) -> str:
    """Return what this machine lacks for a fault; empty if the fault can be made."""
    return ", ".join(text for name in needs for has, text in [NEEDS[name]] if not has())


class Workshop:
    """A directory, and the mounts in it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        self._count = 0

    @classmethod
    @contextlib.contextmanager
    def opened(cls, parent: Path | None = None) -> Iterator["Workshop"]:
        """Open a workshop that leaves nothing behind, after removing those of killed runs."""
        base = parent or Path(tempfile.gettempdir())
        for abandoned in base.glob(f"{PREFIX}*"):
            _clear_abandoned(abandoned)
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield cls(directory)
            finally:
                _end_processes_of(directory)
                clear(directory)

    def directory(self, name: str) -> Path:
        """Create a new directory."""
        self._count += 1
        made = self.root / f"{name}-{self._count}"
        made.mkdir()
        return made

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """Create a new directory, and remove it at the end."""
        made = self.directory(name)
        try:
            yield made
        finally:
            clear(made)


def run(*command: str | Path) -> str:
    """Run a tool. Raise OSError with its output if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def mounts_in(directory: Path) -> list[Path]:
    """Return the mount points in a directory, innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [Path(line.split(" ")[1].replace("\\040", " ")) for line in lines]
    return sorted((p for p in points if p.is_relative_to(directory)), key=lambda p: -len(p.parts))


def clear(directory: Path) -> None:
    """Unmount everything in a directory, and remove it."""
    for point in mounts_in(directory):
        with contextlib.suppress(OSError):
            run("umount", point)
    for point in mounts_in(directory):  # some process still has a file open
        run("umount", "--lazy", point)
    shutil.rmtree(directory, ignore_errors=True)


def _clear_abandoned(directory: Path) -> None:
    try:
        lock = (directory / "lock").open("r+")
    except FileNotFoundError:
        lock = None
    except NotADirectoryError:
        return
    if lock is not None:
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another run is using it
            _end_processes_of(directory)
            clear(directory)
    elif time.time() - directory.stat().st_mtime > LOCKED_WITHIN_S:
        clear(directory)


def _end_processes_of(directory: Path) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if str(directory).encode() + b"/" in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
