"""The CPU cost of a message with several brokers on one core: ``--brokers 2`` beside one alone.

    python -m benchmarks.all_cores [--brokers 2] [--rounds 3] [--seconds 3] [--save NAME]

All servers share one core, and the load has another. Each round sends single messages to one
broker, then to several brokers of one parent at the same time. The figure is messages per second of
the brokers' CPU time. Wall times depend on the number of cores and are omitted.
"""

import argparse
import json
import statistics
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks import load, servers, topics
from benchmarks.cases import BASE
from benchmarks.origin import here_and_now
from benchmarks.servers import Server

RATIO_MIN = 0.85
CORES_ASKED = 16
PORTS_APART = 20
POLL_S = 0.05


def main() -> None:
    """Print messages per CPU second of one broker and of several, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    origin = here_and_now("")
    load.build_loadgen()
    alone, together = [], []
    for _ in range(options.rounds):
        load.wait_until_quiet(10)
        alone.append(per_cpu_second(1, options.seconds))
        together.append(per_cpu_second(options.brokers, options.seconds))
        print(f"one: {alone[-1]:,.0f}/s of CPU, {options.brokers}: {together[-1]:,.0f}/s of CPU")
    one, several = statistics.median(alone), statistics.median(together)
    ratio = several / one
    verdict = "ok" if ratio >= RATIO_MIN else "BELOW"
    print(f"{options.brokers} beside one: {ratio:.2f} >= {RATIO_MIN} {verdict}")
    print(f"{CORES_ASKED} cores for brokers, at this ratio: {CORES_ASKED * several / 1e6:,.1f} M/s")
    if options.save:
        found = {
            "origin": asdict(origin),
            "brokers": options.brokers,
            "one_per_cpu_s": one,
            "several_per_cpu_s": several,
            "ratio": ratio,
        }
        kept = load.HERE / "results" / f"{options.save}.json"
        kept.write_text(json.dumps(found, indent=1) + "\n")


def per_cpu_second(count: int, seconds: float) -> float:
    """Return the messages of *count* brokers per CPU second of all."""
    with servers.rockhopper({"brokers": str(count)}) as server:
        brokers = [(server.port, server.pid)] if count == 1 else _brokers(server, count)
        with ThreadPoolExecutor(count) as threads:
            samples = list(threads.map(lambda at: load.run(BASE, at[0], at[1], seconds), brokers))
    messages = sum(sample.messages_per_s for sample in samples)
    return messages / sum(sample.messages_per_s * sample.cpu_us / 1e6 for sample in samples)


def _brokers(parent: Server, count: int) -> list[tuple[int, int]]:
    """Return each broker's port and process, once all accept messages and know the topics."""
    while not _is_ready(parent.http_port):
        time.sleep(POLL_S)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    ports = [parent.port + PORTS_APART * number for number in range(count)]
    for port in ports[1:]:
        topics.prepare(port)
    return list(zip(ports, map(int, children), strict=True))


def _is_ready(http_port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz") as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


if __name__ == "__main__":
    main()
