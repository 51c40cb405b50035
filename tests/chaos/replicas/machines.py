"""Machines: each gives a replica a disk, which can fill up or lose power, and a clock.

If no disk can be created, a machine has a directory; if libfaketime is not wanted, it has the real
clock. A power cut kills the replica, discards everything that its file system had not written, and
changes the machine's boot id, as Linux does at each start.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.clock_jumps import FakedClock
from tests.chaos.disks import Ext4Disk, ReflinkDisk
from tests.chaos.full_disk import fill

BOOT_ID = "/proc/sys/kernel/random/boot_id"
BOOTED_ANEW = ("sh", "-c", f'mount --bind "$0" {BOOT_ID} && exec "$@"')
"""The start of a command line, before a file with the boot id and the command that reads it."""


class Machine:
    """The disk and clock of one replica."""

    def __init__(
        self, directory: Path, *, disk: Ext4Disk | None = None, has_clock: bool = False
    ) -> None:
        """Take a disk that is not mounted; ``switched_on`` mounts it."""
        directory.mkdir()
        self._directory, self._disk = directory, disk
        self.clock = FakedClock(directory) if has_clock else None
        self._boot = directory / "boot_id"
        self._mounts = ExitStack()
        self._start_anew()

    @property
    def home(self) -> Path:
        """The directory of the replica's store."""
        return self._disk.point if self._disk else self._directory

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that make a process use this machine's clock."""
        return self.clock.environment if self.clock else {}

    def enter(self, host: Sequence[str]) -> Sequence[str]:
        """Return the start of a command line that runs a process on this machine and on *host*."""
        # Without its own host, a process shares all mounts, including /proc, with the others.
        return (*host, *BOOTED_ANEW, str(self._boot)) if host else host

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        """Mount the disk, and unmount the current disk at the end."""
        with self._mounts:
            self._mount()
            yield

    def fill(self, left_bytes: int) -> None:
        """Fill the disk except for *left_bytes*."""
        self.free()
        fill(self._ballast, left_bytes)

    def free(self) -> None:
        """Free the filled part of the disk, if any."""
        self._ballast.unlink(missing_ok=True)

    def cut_power(self) -> None:
        """Discard everything that is not on the disk. No process may be running here."""
        if self._disk is None:
            raise ValueError("this machine has no disk of its own: its power cannot be cut")
        cut = self._disk.cut()
        self._mounts.close()
        cut.point, self._disk = self._disk.point, cut
        self._mount()
        self.free()
        self._start_anew()

    @property
    def _ballast(self) -> Path:
        return self.home / "ballast"

    def _mount(self) -> None:
        if self._disk is not None:
            self._mounts.enter_context(self._disk.mounted())

    def _start_anew(self) -> None:
        self._boot.write_text(f"{uuid.uuid4()}\n")


@contextmanager
def switched_on(
    directory: Path, numbers: Sequence[int], *, has_disks: bool, has_clocks: bool
) -> Iterator[Mapping[int, Machine]]:
    """Create one machine for each number, until the end of the block."""
    with ExitStack() as stack:
        reflink = stack.enter_context(ReflinkDisk.made(directory)) if has_disks else None
        machines = {}
        for number in numbers:
            disk = reflink.formatted() if reflink else None
            home = directory / f"machine-{number}"
            machines[number] = Machine(home, disk=disk, has_clock=has_clocks)
            stack.enter_context(machines[number].switched_on())
        yield machines
