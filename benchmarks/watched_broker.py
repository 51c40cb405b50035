"""A broker that reports what blocks its event loop: ``python -m benchmarks.watched_broker -c …``.

A timer reads three clocks of the loop's thread every millisecond, and the collector's pauses. Each
line of standard input is answered with the maxima since the previous line, as JSON in milliseconds:

    cpu    processor time of the loop's thread in one turn, and up to 1 ms of earlier turns
    own    wall time without the thread's waits for a core: its computing, its waits for the
           disk, and its waits for the interpreter lock, which another of our threads holds
    wall   wall time; on a busy machine it includes the turns of other processes
    process  processor seconds of all threads since the last line; written: bytes, without sockets
    gc     processor time of one pause of the garbage collector, in any thread

The options are the broker's.
"""

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Mapping

from rockhopper.broker import cli as daemon
from rockhopper.broker.settings.config_file import LoadedConfig

TICK_S = 0.001
SLICE_S = 0.01
"""A turn that lasts longer is sampled, and its code named in the answer."""
_NS = 1e9


class Watch:
    """The clocks of the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._pause_began_s = 0.0
        self._turn = 0
        self.worst: dict[str, float] = {}
        self.what: list[tuple[float, str]] = []
        self._seen = ""
        self._last = self._read()
        self._used = _used()
        gc.callbacks.append(self._collecting)
        threading.Thread(target=self._look, daemon=True).start()
        loop.add_reader(sys.stdin.fileno(), self._answer)
        self._tick()

    def _read(self) -> dict[str, float]:
        waited_s = int(os.pread(self._schedule, 100, 0).split()[1]) / _NS
        wall_s = time.perf_counter()
        return {"cpu": time.thread_time(), "own": wall_s - waited_s, "wall": wall_s}

    def _tick(self) -> None:
        self._turn += 1
        now, last = self._read(), self._last
        for name, value in now.items():
            took_s = value - last[name] - (TICK_S if name != "cpu" else 0)
            self.worst[name] = max(self.worst.get(name, 0.0), took_s)
        if self._seen:
            self.what.append((1e3 * (now["cpu"] - last["cpu"]), self._seen))
            self._seen = ""
        self._last = now
        self._loop.call_later(TICK_S, self._tick)

    def _collecting(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._pause_began_s = time.thread_time()
        else:
            took_s = time.thread_time() - self._pause_began_s
            self.worst["gc"] = max(self.worst.get("gc", 0.0), took_s)

    def _look(self) -> None:
        """Note where the loop's thread is when a turn has lasted for long."""
        looked_at = 0
        while True:
            time.sleep(SLICE_S / 4)
            turn = self._turn
            if turn != looked_at and time.perf_counter() - self._last["wall"] > SLICE_S:
                looked_at = turn
                frame = sys._current_frames().get(self._thread)
                places = []
                while frame is not None and frame.f_code is not Watch._tick.__code__:
                    code = frame.f_code
                    places.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno}")
                    frame = frame.f_back
                self._seen = " < ".join(places[:5])

    def _answer(self) -> None:
        if not sys.stdin.readline():
            self._loop.remove_reader(sys.stdin.fileno())
            return
        found = {name: round(1e3 * value, 2) for name, value in self.worst.items()}
        used = _used()
        found |= {name: value - self._used[name] for name, value in used.items()}
        print(
            json.dumps({"gc": 0.0} | found | {"what": sorted(self.what, reverse=True)}), flush=True
        )
        self.worst, self.what, self._used = {}, [], used
        self._last = self._read()


def _used() -> dict[str, float]:
    """Return the process's totals: processor seconds, and bytes given to write(2)."""
    with open("/proc/self/io") as file:
        written = next(line for line in file if line.startswith("wchar:"))
    return {"process": time.process_time(), "written": float(written.split()[1])}


async def _serve(loaded: LoadedConfig, parent_http: int | None = None) -> int:
    Watch(asyncio.get_running_loop())
    return await serve(loaded, parent_http)


serve = daemon.serve

if __name__ == "__main__":
    daemon.serve = _serve
    daemon.main()
