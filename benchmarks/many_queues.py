"""What a broker with tens of thousands of queues costs: first sends, sends, stops and starts.

    python -m benchmarks.many_queues [--queues 40000] [--rounds 5] [--directory /tmp]

Each round makes a broker with default file sizes and

- sends a message to each new queue, and twice more to each (the first and the second less the third
  are what these cost more: the files are made and mapped),
- sends to one queue as often,
- stops the broker at once (SIGTERM), starts it, sends to each queue, kills it, starts it, stops it.

The output has CPU time of the event loop's thread and of all threads, system time included, for
sends; wall and CPU time for starts, until the port listens, and for stops. An empty store's start
and stop are beside them. The figures are medians.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.stalls import Broker, send

QUEUES_PER_TOPIC = 4
SETTLING_S = 0.5
MAKING_S = 2.0


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.directory, prefix="many-queues-") as name:
            for what, value in _Round(Path(name), options.queues).measure():
                found.setdefault(what, []).append(value)
                print(f"  {number}: {what}: {value:.3f}", flush=True)
    print(f"{'medians of ' + str(options.rounds):56}{'median':>10}{'least':>10}{'most':>10}")
    for what, values in found.items():
        print(f"{what:56}{statistics.median(values):10.3f}{min(values):10.3f}{max(values):10.3f}")


class _Round:
    """One round, with stores of its own."""

    def __init__(self, directory: Path, queue_count: int) -> None:
        self._directory = directory
        self._topics = [f"topic-{number}" for number in range(queue_count // QUEUES_PER_TOPIC)]
        self._count = len(self._topics) * QUEUES_PER_TOPIC
        self._store = directory / "store"

    def measure(self) -> Iterable[tuple[str, float]]:
        """Yield the name and value of each figure."""
        empty = self._directory / "empty"
        _stop(Broker(empty, {}))
        broker, began_s, cpu_s = _start(empty)
        yield "empty: start, wall s", began_s
        yield "empty: start, cpu s", cpu_s
        yield "empty: stop, wall s", _stop(broker)

        broker = Broker(self._store, {})
        broker.make_topics((topic, QUEUES_PER_TOPIC) for topic in self._topics)
        first = self._cost(broker, self._send_to_all)
        time.sleep(MAKING_S)
        second = self._cost(broker, self._send_to_all)
        again = self._cost(broker, self._send_to_all)
        one = self._cost(broker, self._send_to_one)
        yield "first send, loop us", first[0] - again[0]
        yield "first send, all threads us", first[1] - again[1]
        yield "second send, loop us", second[0] - again[0]
        yield "send to one of all queues in turn, loop us", again[0]
        yield "send to one queue, loop us", one[0]
        yield "many queues / one queue", again[0] / one[0]
        yield "new queues: stop, wall s", _stop(broker)

        broker, began_s, cpu_s = _start(self._store)
        yield "after a clean stop: start, wall s", began_s
        yield "after a clean stop: start, cpu s", cpu_s
        self._send_to_all(broker)
        broker.process.kill()
        broker.process.wait()
        broker, began_s, cpu_s = _start(self._store)
        yield "after kill -9: start, wall s", began_s
        yield "after kill -9: start, cpu s", cpu_s
        yield "idle queues: stop, wall s", _stop(broker)

    def _cost(self, broker: Broker, act: Callable[[Broker], None]) -> tuple[float, float]:
        """Return the microseconds of the loop's thread, and of all threads, for one message."""
        before = _thread_cpu_s(broker), _cpu_s(broker)
        act(broker)
        time.sleep(SETTLING_S)
        after = _thread_cpu_s(broker), _cpu_s(broker)
        loop_us, all_us = (1e6 * (b - a) / self._count for a, b in zip(before, after, strict=True))
        return loop_us, all_us

    def _send_to_all(self, broker: Broker) -> None:
        broker.client.ask_all(
            send(topic, queue) for queue in range(QUEUES_PER_TOPIC) for topic in self._topics
        )

    def _send_to_one(self, broker: Broker) -> None:
        broker.client.ask_all(send(self._topics[0], 0) for _ in range(self._count))


def _start(store: Path) -> tuple[Broker, float, float]:
    """Start a broker; return it, and the wall and CPU seconds until it listens."""
    began_s = time.perf_counter()
    broker = Broker(store, {})
    return broker, time.perf_counter() - began_s, _cpu_s(broker)


def _stop(broker: Broker) -> float:
    began_s = time.perf_counter()
    broker.stop()
    return time.perf_counter() - began_s


def _cpu_s(broker: Broker) -> float:
    """Return the CPU seconds of all threads that live."""
    tasks = Path(f"/proc/{broker.process.pid}/task")
    return sum(map(_run_s, tasks.iterdir()))


def _thread_cpu_s(broker: Broker) -> float:
    pid = broker.process.pid
    return _run_s(Path(f"/proc/{pid}/task/{pid}"))


def _run_s(task: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    return 0.0


if __name__ == "__main__":
    main()
