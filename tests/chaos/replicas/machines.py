"""Machines: what replicas run on: each a disk, which fills up and whose power is cut, and a clock.

Where no disk can be made, a machine has a directory, and where libfaketime is not wanted, the
machine's own clock. A power cut kills the replica, takes away what its file system had not yet
written, and gives the machine another boot id, which Linux draws anew at each start.
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
"""Begins a command line that goes on with a file and a command that takes it for the boot id."""


class Machine:
    """What one replica runs on."""

    def __init__(
        self, directory: Path, *, disk: Ext4Disk | None = None, has_clock: bool = False
    ) -> None:
        """*disk* is one that is not mounted; ``switched_on`` does that."""
        directory.mkdir()
        self._directory, self._disk = directory, disk
        self.clock = FakedClock(directory) if has_clock else None
        self._boot = directory / "boot_id"
        self._mounts = ExitStack()
        self._start_anew()

    @property
    def home(self) -> Path:
        """Where the replica's store lies."""
        return self._disk.point if self._disk else self._directory

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to see this machine's clock."""
        return self.clock.environment if self.clock else {}

    def enter(self, host: Sequence[str]) -> Sequence[str]:
        """What a command line begins with so that it runs on this machine, and that on *host*."""
        # Without a host of its own a process shares the mounts, /proc among them, with all others.
        return (*host, *BOOTED_ANEW, str(self._boot)) if host else host

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        """Mount the disk; at the end it is gone, whichever it is by then."""
        with self._mounts:
            self._mount()
            yield

    def fill(self, left_bytes: int) -> None:
        """Leave that much of the disk free."""
        self.free()
        fill(self._ballast, left_bytes)

    def free(self) -> None:
        """Give the rest of the disk back, if it is filled."""
        self._ballast.unlink(missing_ok=True)

    def cut_power(self) -> None:
        """Lose what is not on the disk. Nothing may run here."""
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
    """One machine for each number, until the end of the block."""
    with ExitStack() as stack:
        reflink = stack.enter_context(ReflinkDisk.made(directory)) if has_disks else None
        machines = {}
        for number in numbers:
            disk = reflink.formatted() if reflink else None
            home = directory / f"machine-{number}"
            machines[number] = Machine(home, disk=disk, has_clock=has_clocks)
            stack.enter_context(machines[number].switched_on())
        yield machines
