"""The resources of this process and its descendants, including those that end meanwhile."""

import os
import threading
from pathlib import Path
from typing import Self

_LOOK_EVERY_S = 0.25


class Meter:
    """Measures the processes while it is entered.

    No process waits for Spark's Python workers, so no parent's account includes their time when
    they end. The meter therefore samples them continuously.
    """

    cpu_s: float
    """The CPU seconds that all of them used, available after the exit."""

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, str], int] = {}
        self.peaks_mb: dict[str, int] = {}
        """The peak memory of one process of each kind: driver, java, worker, broker.

        For the broker this is its anonymous memory, without the pages of its mapped files.
        """
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._before = self._look()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()
        self.cpu_s = (self._look() - self._before) / os.sysconf("SC_CLK_TCK")

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> int:
        parents: dict[int, int] = {}
        ticks: dict[int, tuple[str, int]] = {}
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                try:
                    fields = (process / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has just ended
                number = int(process.name)
                parents[number] = int(fields[1])
                ticks[number] = fields[19], int(fields[11]) + int(fields[12])
        own = {os.getpid()}
        while more := {child for child, parent in parents.items() if parent in own} - own:
            own |= more
        self._ticks |= {(each, ticks[each][0]): ticks[each][1] for each in own if each in ticks}
        for each in own:
            self._note_memory(each)
        return sum(self._ticks.values())

    def _note_memory(self, process: int) -> None:
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            return
        kind = _kind(process, command)
        name = "RssAnon:" if kind == "broker" else "VmRSS:"
        sizes = [line.split()[1] for line in status.splitlines() if line.startswith(name)]
        if sizes:
            self.peaks_mb[kind] = max(self.peaks_mb.get(kind, 0), int(sizes[0]) >> 10)


def _kind(process: int, command: bytes) -> str:
    if process == os.getpid():
        return "driver"
    if b"rockhopper.broker" in command:
        return "broker"
    return "java" if b"java" in command.partition(b"\0")[0] else "worker"
