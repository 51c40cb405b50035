"""Reads and writes of Spark through our source and sink, beside its own for Kafka.

There is one session, and both brokers are on this machine and the same disk. The data is a million
messages of 200 bytes in 4 queues or partitions. Every case runs once per round, ours and Kafka's in
turn. The figures are wall time, and CPU time of everything together: driver, JVM, Python workers
and the broker of the case. Ratios are of medians of the same run. Messages of a batch read are
counted by their offsets, never assumed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import kafka
from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from benchmarks.processes import Meter
from benchmarks.report import table
from benchmarks.servers import broker_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = 4
BODY_BYTES = 200
TOPIC, TARGET, WIDE = "read", "written", "wide"
WIDE_QUEUES, WIDE_MESSAGES = 4000, 12_000
KAFKAS_COLUMNS = "topic,queueId,queueOffset,body,keys,storeTimestamp"
"""The columns of Kafka's source: key, value, topic, partition, offset, timestamp."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    title: str
    to: str = ""
    """The case with which it is compared."""
    at_most: float | None = None
    """The maximum of the ratio of times; without *to*, of the CPU seconds."""


CASES = {
    "kafka-read": Case("Kafka: batch read"),
    "read-same": Case("batch read, Kafka's columns", "kafka-read", 0.8),
    "read": Case("batch read, defaults", "kafka-read", 1.0),
    "kafka-count": Case("Kafka: count()"),
    "count": Case("count()", "kafka-count", 0.8),
    "kafka-stream": Case("Kafka: stream, AvailableNow, no sink"),
    "stream": Case("stream, AvailableNow, no sink", "kafka-stream", 1.0),
    "kafka-write": Case("Kafka: write"),
    "write": Case("write, at least once", "kafka-write", 0.9),
    "exactly": Case("write, exactly once", "write", 1.2),
    "wide": Case(f"{WIDE_MESSAGES:,} messages in {WIDE_QUEUES:,} queues, CPU s", "", 1.0),
}


@dataclass
class Results:
    """Seconds and CPU seconds by case, one for each round."""

    machine: str
    messages: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, name: str, *, by_cpu: bool = False) -> float | None:
        """Return a case's ratio to the other case; its CPU seconds if it has none."""
        case, rounds = CASES[name], self.cpu_seconds if by_cpu else self.seconds
        if not rounds.get(name):
            return None
        if not case.to:
            return statistics.median(self.cpu_seconds[name])
        if not rounds.get(case.to):
            return None
        return statistics.median(rounds[name]) / statistics.median(rounds[case.to])

    def render(self) -> str:
        """Return the table for people."""
        rows = [["case", "s", "CPU us", "ratio of times", "of CPU", "wanted", ""]]
        for name, case in CASES.items():
            if name not in self.seconds:
                continue
            count = WIDE_MESSAGES if name == "wide" else self.messages
            seconds = statistics.median(self.seconds[name])
            cpu = statistics.median(self.cpu_seconds[name])
            row = [case.title, f"{seconds:.2f}", f"{cpu / count * 1e6:.1f}"]
            value, by_cpu = self.ratio(name), self.ratio(name, by_cpu=True)
            if case.at_most is None or value is None or by_cpu is None:
                row += ["", "", "", ""]
            else:
                verdict = "ok" if value <= case.at_most else "ABOVE"
                row += [f"{value:.2f}", f"{by_cpu:.2f}", f"<= {case.at_most:g}", verdict]
            rows.append(row)
        return f"{self.machine}\n\n{table(rows)}\n"

    def document(self) -> dict[str, Any]:
        """Return the results for programs."""
        return {**asdict(self), "ratios": {name: self.ratio(name) for name in CASES}}


class Beside:
    """One session, and both brokers."""

    def __init__(
        self,
        spark: "SparkSession",
        directory: Path,
        results: Results,
        nameserver: str,
        bootstrap: str,
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._results = results
        self._ours = {"nameServer": nameserver}
        self._theirs = {"kafka.bootstrap.servers": bootstrap}
        self._written = 0
        self._work: dict[str, Callable[[], None]] = {
            "kafka-read": lambda: _drain(self._kafka()),
            "read-same": lambda: _drain(self._read(columns=KAFKAS_COLUMNS)),
            "read": lambda: _drain(self._read()),
            "kafka-count": lambda: self._count(self._kafka()),
            "count": lambda: self._count(self._read()),
            "kafka-stream": lambda: self._stream("kafka", self._theirs),
            "stream": lambda: self._stream("rocketmq", self._ours),
            "kafka-write": self._kafka_write,
            "write": self._write,
            "exactly": lambda: self._write(exactly=True),
            "wide": self._read_wide,
        }

    def prepare(self) -> None:
        """Write the data to read; the rows to write come from Parquet."""
        rows = self._results.messages
        text = f"substr(repeat(sha2(cast(id as string), 512), 2), 1, {BODY_BYTES})"
        frame = self._spark.range(0, rows, 1, QUEUES).selectExpr(
            f"cast({text} as binary) as body", "concat('k', id) as keys", f"id % {QUEUES} as part"
        )
        frame.write.mode("overwrite").parquet(str(self._directory / "rows"))
        self._rows().write.format("rocketmq").options(**self._ours, topic=TOPIC).mode(
            "append"
        ).save()
        self._kafka_rows().write.format("kafka").options(**self._theirs, topic=TOPIC).save()
        wide = self._spark.range(WIDE_MESSAGES).selectExpr(
            "cast(id as string) as body", f"cast(id % {WIDE_QUEUES // 4} as int) as queueId"
        )
        for number in range(4):
            wide.where(f"id % 4 = {number}").write.format("rocketmq").options(
                **self._ours, topic=f"{WIDE}-{number}"
            ).mode("append").save()

    def run(self, name: str) -> None:
        """Measure one case once."""
        with Meter() as cpu:
            began = time.perf_counter()
            self._work[name]()
            seconds = time.perf_counter() - began
        self._results.seconds.setdefault(name, []).append(round(seconds, 3))
        self._results.cpu_seconds.setdefault(name, []).append(round(cpu.cpu_s, 3))
        load = os.getloadavg()[0]
        _say(f"  {CASES[name].title}: {seconds:.2f} s, {cpu.cpu_s:.2f} s of CPU, load {load:.1f}")

    def _read(self, **options: str) -> "DataFrame":
        given = {**self._ours, "subscribe": TOPIC, **options}
        return self._spark.read.format("rocketmq").options(**given).load()

    def _kafka(self) -> "DataFrame":
        given = {**self._theirs, "subscribe": TOPIC}
        return self._spark.read.format("kafka").options(**given).load()

    def _count(self, frame: "DataFrame") -> None:
        if (count := frame.count()) != self._results.messages:
            raise BenchError(f"{count:,} messages were read, of {self._results.messages:,}")

    def _read_wide(self) -> None:
        topics = ",".join(f"{WIDE}-{number}" for number in range(4))
        if (count := self._read(subscribe=topics).count()) != WIDE_MESSAGES:
            raise BenchError(f"{count:,} messages were read, of {WIDE_MESSAGES:,}")

    def _stream(self, source: str, options: dict[str, str]) -> None:
        with tempfile.TemporaryDirectory(dir=self._directory) as checkpoint:
            reader = self._spark.readStream.format(source).options(**options, subscribe=TOPIC)
            frame = reader.option("startingOffsets", "earliest").load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            count = sum(each["numInputRows"] for each in query.recentProgress)
        if count != self._results.messages:
            raise BenchError(f"{count:,} messages were read, of {self._results.messages:,}")

    def _rows(self) -> "DataFrame":
        return self._spark.read.parquet(str(self._directory / "rows")).select("body", "keys")

    def _kafka_rows(self) -> "DataFrame":
        return self._spark.read.parquet(str(self._directory / "rows")).selectExpr(
            "keys as key", "body as value"
        )

    def _kafka_write(self) -> None:
        self._kafka_rows().write.format("kafka").options(**self._theirs, topic=TARGET).save()

    def _write(self, *, exactly: bool = False) -> None:
        given = {**self._ours, "topic": TARGET}
        if exactly:
            self._written += 1
            given |= {
                "delivery": "exactly-once",
                "sinkId": "benchmark",
                "batchId": str(self._written),
            }
        self._rows().write.format("rocketmq").options(**given).mode("append").save()


def _drain(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def our_broker(directory: Path) -> Iterator[str]:
    """Run a broker with all topics; yield its name server."""
    with broker_on(directory / "ours") as nameserver:
        asyncio.run(_create_topics(nameserver))
        yield nameserver


async def _create_topics(nameserver: str) -> None:
    from rockhopper.client import Admin

    async with Admin(nameserver) as admin:
        for name in (TOPIC, TARGET):
            await admin.create_topic(name, queues=QUEUES)
        for number in range(4):
            await admin.create_topic(f"{WIDE}-{number}", queues=WIDE_QUEUES // 4)


def _session(jars: list[Path], memory: str) -> "SparkSession":
    from rockhopper import pipeline

    conf = {"spark.driver.memory": memory, "spark.jars": ",".join(map(str, jars))}
    return pipeline.local_session("beside Kafka", **conf)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return 1 if a figure exceeds its target, 2 if it could not run."""
    options = _parse(arguments)
    cases = [case for case in CASES if case in options.cases.split(",")]
    BUILD.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="beside-", dir=BUILD))
        )
        try:
            spark_jars = kafka.jars("spark")
            bootstrap = stack.enter_context(
                kafka.broker(directory / "kafka", {TOPIC: QUEUES, TARGET: QUEUES})
            )
            nameserver = stack.enter_context(our_broker(directory))
            spark = _session(spark_jars, options.memory)
            stack.callback(spark.stop)
            machine = (
                f"CPython {platform.python_version()}, Spark {spark.version}, Kafka "
                f"{kafka.version('kafka')} with the connector of Spark {kafka.version('spark')}, "
                f"{os.cpu_count()} cores, {options.messages:,} messages of {BODY_BYTES} bytes; "
                f"load when started {os.getloadavg()[0]:.1f}."
            )
            results = Results(machine, options.messages)
            beside = Beside(spark, directory, results, nameserver, bootstrap)
            _say("writing what is read")
            beside.prepare()
            for number in range(options.rounds):
                _say(f"round {number + 1} of {options.rounds}")
                for case in cases:
                    beside.run(case)
        except BenchError as error:
            print(error, file=sys.stderr)
            return 2
    print(json.dumps(results.document(), indent=1) if options.json else results.render())
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(results.document(), indent=1) + "\n")
        _say(f"wrote {options.save}")
    missed = [
        name
        for name, case in CASES.items()
        if case.at_most is not None
        and (value := results.ratio(name)) is not None
        and value > case.at_most
    ]
    return int(bool(missed))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_beside_kafka", description=__doc__
    )
    names = ",".join(CASES)
    parser.add_argument("--cases", default=names, help=f"comma-separated, of {names}")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="default a million")
    parser.add_argument("--memory", default="3g", help="of the JVM (default 3g)")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write them as JSON")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases.split(",")) - set(CASES):
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; there are {names}")
    return options


if __name__ == "__main__":
    sys.exit(main())
