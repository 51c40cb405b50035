"""The speed of the Spark pipeline on this machine, beside Spark's own Parquet reader.

There is one log of 2 million messages of 200 bytes and one session, and every case runs once per
round. The best round counts, since neighbours on a shared machine change the figures from minute to
minute. Ratios are between best figures of the same run. The report also has the CPU time of driver,
broker and all processes of Spark, which neighbours hardly change.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from benchmarks.pipeline_data import QUEUE_COUNT, TOPIC_COUNT, write_store
from benchmarks.processes import Meter
from benchmarks.report import table
from benchmarks.servers import broker_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIVE = "topic,queueId,queueOffset,storeTimestamp,physOffset"
FIVE_WITH_TAGS = "topic,queueId,queueOffset,storeTimestamp,tags"
TOPICS = ",".join(f"topic-{number}" for number in range(TOPIC_COUNT))
DISPATCH_TIMEOUT_S = 600


@dataclass(frozen=True)
class Target:
    """The target of one figure, as a ratio to another or absolute."""

    case: str
    title: str
    at_least: float | None
    to: str = ""
    """The case to compare with; empty for MB/s of log."""


TARGETS = (
    Target("store", "rocketmq-store, all columns, to native Parquet", 0.45, "parquet"),
    Target("store5", "rocketmq-store, five columns, to native Parquet", 0.3, "parquet5"),
    Target("store5tags", "  the same with tags", None, "parquet5tags"),
    Target("crc", "audit's CRC pass, MB/s", 500),
    Target("archive", "archive, to df.write.parquet", 3, "write"),
    Target("network", "rocketmq over the network, to rocketmq-store", 0.4, "store"),
    Target("report", "report, to native Parquet", None, "parquet"),
)
CASES = {
    "parquet": "native Parquet, all columns",
    "store": "rocketmq-store, all columns",
    "parquet5": "native Parquet, five columns",
    "store5": "rocketmq-store, five columns",
    "parquet5tags": "native Parquet, five with tags",
    "store5tags": "rocketmq-store, five with tags",
    "crc": "audit, CRC only",
    "write": "rocketmq-store, df.write.parquet",
    "archive": "archive",
    "network": "rocketmq over the network",
    "report": "report",
}


@dataclass
class Results:
    """Seconds and CPU seconds by case, one for each round."""

    machine: str
    messages: int
    log_bytes: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def best(self, case: str) -> float | None:
        """Return the seconds of the fastest round."""
        return min(self.seconds[case]) if self.seconds.get(case) else None

    def figure(self, target: Target, *, by_cpu: bool = False) -> float | None:
        """Return the figure to judge; None if a case did not run."""
        rounds = self.cpu_seconds if by_cpu else self.seconds
        ours = min(rounds.get(target.case, []), default=None)
        if ours is None:
            return None
        if not target.to:
            return self.log_bytes / ours / 1e6
        other = min(rounds.get(target.to, []), default=None)
        return None if other is None else other / ours

    def render(self) -> str:
        """Return the tables for people."""
        heading = ["case", "best s", "k messages/s", "MB/s of log", "CPU us", "all rounds, s"]
        rows = [heading]
        for case, title in CASES.items():
            best = self.best(case)
            if best is not None:
                rounds = ", ".join(f"{each:.2f}" for each in self.seconds[case])
                rate = f"{self.messages / best / 1000:,.0f}"
                speed = f"{self.log_bytes / best / 1e6:,.0f}"
                cpu = f"{min(self.cpu_seconds[case]) / self.messages * 1e6:.2f}"
                rows.append([title, f"{best:.2f}", rate, speed, cpu, rounds])
        verdicts = [["figure", "by time", "target", "verdict", "by CPU time"]]
        for target in TARGETS:
            value, by_cpu = self.figure(target), self.figure(target, by_cpu=True)
            if value is not None and by_cpu is not None:
                wanted = "" if target.at_least is None else f">= {target.at_least:g}"
                verdict = _verdict(value, target)
                verdicts.append([target.title, _short(value), wanted, verdict, _short(by_cpu)])
        return "\n\n".join([self.machine, table(rows), table(verdicts)]) + "\n"

    def document(self) -> dict[str, Any]:
        """Return the results for programs."""
        figures = {each.case: self.figure(each) for each in TARGETS}
        return {**asdict(self), "figures": figures}


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _verdict(value: float, target: Target) -> str:
    if target.at_least is None:
        return ""
    return "ok" if value >= target.at_least else "BELOW"


class Bench:
    """One log, one session, and the cases that use them."""

    def __init__(self, spark: "SparkSession", directory: Path, results: Results) -> None:
        self._spark = spark
        self._directory = directory
        self._store = directory / "store"
        self._parquet = directory / "parquet"
        self._results = results
        self._work: dict[str, Callable[[], None]] = {
            "parquet": lambda: self._read_parquet("*"),
            "parquet5": lambda: self._read_parquet(FIVE),
            "parquet5tags": lambda: self._read_parquet(FIVE_WITH_TAGS),
            "store": lambda: self._read_store("*"),
            "store5": lambda: self._read_store(FIVE),
            "store5tags": lambda: self._read_store(FIVE_WITH_TAGS),
            "crc": self._crc,
            "write": self._write,
            "archive": self._archive,
            "network": lambda: None,
            "report": self._report,
        }

    def prepare(self, *, network: bool) -> None:
        """Write the rows as Parquet, and let a broker create its consume queues."""
        _say("writing the rows as Parquet")
        self._source().write.mode("overwrite").parquet(str(self._parquet))
        if network:
            _say("letting a broker make consume queues")
            with self._broker():
                pass

    def run(self, case: str) -> None:
        """Measure one case once."""
        with contextlib.ExitStack() as stack:
            work = self._work[case]
            if case == "network":
                work = partial(self._read_topics, stack.enter_context(self._broker()))
            with Meter() as cpu:
                began = time.perf_counter()
                work()
                seconds = time.perf_counter() - began
        self._results.seconds.setdefault(case, []).append(round(seconds, 3))
        self._results.cpu_seconds.setdefault(case, []).append(round(cpu.cpu_s, 3))
        rate = self._results.messages / seconds / 1000
        load = os.getloadavg()[0]
        _say(
            f"  {CASES[case]}: {seconds:.2f} s, {rate:,.0f} k/s, {cpu.cpu_s:.2f} s of CPU, "
            f"load {load:.1f}"
        )

    def _source(self, **options: str) -> "DataFrame":
        reader = self._spark.read.format("rocketmq-store")
        return reader.options(**{"path": str(self._store), "columns": "all", **options}).load()

    def _read_parquet(self, columns: str) -> None:
        frame = self._spark.read.parquet(str(self._parquet))
        _drain(frame.select(*columns.split(",")))

    def _read_store(self, columns: str) -> None:
        _drain(self._source(columns=columns))

    def _crc(self) -> None:
        from rockhopper.pipeline.jobs.auditing.job import audit

        result = audit(str(self._store), checks=["crc"], spark=self._spark)
        if not result.is_good:
            raise BenchError(f"the audit found something: {list(result.lines())}")

    def _write(self) -> None:
        with self._scratch() as target:
            self._source().write.parquet(target)

    def _archive(self) -> None:
        from rockhopper.pipeline.jobs.archiving.job import archive

        with self._scratch() as target:
            rows = archive(target, path=self._store, broker_name="bench", spark=self._spark).rows
        if rows != self._results.messages:
            raise BenchError(f"the archive has {rows} messages of {self._results.messages}")

    def _read_topics(self, nameserver: str) -> None:
        options = {"nameServer": nameserver, "subscribe": TOPICS, "columns": "all"}
        _drain(self._spark.read.format("rocketmq").options(**options).load())

    def _report(self) -> None:
        from rockhopper.pipeline.jobs.reporting.job import report

        with self._scratch() as target:
            report(target, path=self._store, spark=self._spark)

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[str]:
        target = self._directory / "scratch"
        try:
            yield str(target)
        finally:
            shutil.rmtree(target, ignore_errors=True)

    @contextlib.contextmanager
    def _broker(self) -> Iterator[str]:
        """Run a broker on the store; yield once all messages are in its topics' queues."""
        kept = ("--set", "fileReservedTime=999999")  # the log's timestamps are old
        with broker_on(self._store, "--name", "bench", *kept) as nameserver:
            await_queues(nameserver, self._results.messages)
            yield nameserver


def await_queues(nameserver: str, messages: int, more_topics: Sequence[str] = ()) -> None:
    """Create the topics of the log and *more_topics*; wait until all messages are in queues."""

    async def wait() -> None:
        from rockhopper.client import Admin

        async with Admin(nameserver) as admin, asyncio.timeout(DISPATCH_TIMEOUT_S):
            count = -1
            for topic in {*TOPICS.split(","), *more_topics} - set(await admin.topics()):
                await admin.create_topic(topic, queues=QUEUE_COUNT)
            while count != messages:
                await asyncio.sleep(0.5)
                held = [await admin.ranges(topic) for topic in TOPICS.split(",")]
                count = sum(queue.count for topic in held for queue in topic)

    asyncio.run(wait())


def _drain(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _session(memory: str) -> "SparkSession":
    from rockhopper import pipeline

    return pipeline.local_session("benchmark", **{"spark.driver.memory": memory})


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a target was missed, 2 if it could not run."""
    options = _parse(arguments)
    cases = [case for case in CASES if case in options.cases.split(",")]
    BUILD.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-", dir=BUILD))
        )
        log_bytes = _write_log(directory / "store", options.messages)
        machine = (
            f"CPython {platform.python_version()}, {os.cpu_count()} cores, {options.messages:,} "
            f"messages of 200 bytes, {log_bytes / 1e6:,.0f} MB of log; load when started "
            f"{os.getloadavg()[0]:.1f}."
        )
        results = Results(machine, options.messages, log_bytes)
        spark = _session(options.memory)
        stack.callback(spark.stop)
        bench = Bench(spark, directory, results)
        try:
            bench.prepare(network="network" in cases)
            for number in range(options.rounds):
                _say(f"round {number + 1} of {options.rounds}")
                for case in cases:
                    bench.run(case)
        except BenchError as error:
            print(error, file=sys.stderr)
            return 2
    print(json.dumps(results.document(), indent=1) if options.json else results.render())
    if options.save:
        for path in _save(results, options.save):
            _say(f"wrote {path}")
    missed = [
        each
        for each in TARGETS
        if each.at_least is not None
        and (value := results.figure(each)) is not None
        and value < each.at_least
    ]
    return int(bool(missed))


def _write_log(store: Path, messages: int) -> int:
    _say(f"writing a log of {messages:,} messages")
    shutil.rmtree(store, ignore_errors=True)
    return write_store(store, messages)


def _save(results: Results, name: str) -> list[Path]:
    directory = Path(__file__).parent / "results"
    directory.mkdir(exist_ok=True)
    told, data = directory / f"{name}.md", directory / f"{name}.json"
    told.write_text(results.render())
    data.write_text(json.dumps(results.document(), indent=1) + "\n")
    return [told, data]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_bench", description=__doc__)
    names = ",".join(CASES)
    parser.add_argument("--cases", default=names, help=f"comma-separated, of {names}")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--messages", type=int, default=2_000_000, help="default 2 million")
    parser.add_argument("--memory", default="3g", help="of the JVM (default 3g)")
    parser.add_argument("--directory", type=Path, help="keep log and Parquet there")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.*")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases.split(",")) - set(CASES):
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; there are {names}")
    return options


if __name__ == "__main__":
    sys.exit(main())
