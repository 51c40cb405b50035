"""Whether time, CPU and memory of the Spark pipeline grow no faster than the number of messages.

    python -m benchmarks.spark_scale [--millions 1,2,4,10] [--save NAME]

Each size has a store of that many messages of 200 bytes, a broker on it, and its own Spark (two
gigabytes for the JVM). The cases are a batch read of all messages, the same as a stream, an
exactly-once write of all to another topic, archive over the network and from files, audit of the
CRCs, and report. Each size runs in its own process, so that no size affects another.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from benchmarks.pipeline_data import write_store
from benchmarks.processes import Meter
from benchmarks.report import table
from benchmarks.servers import broker_on
from benchmarks.spark_bench import TOPICS, await_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("java", "worker", "driver", "broker")
BATCH_OF_A_STREAM = 500_000
TARGET = "copied"


class Scale:
    """One size."""

    def __init__(self, spark: "SparkSession", directory: Path, nameserver: str, messages: int):
        self._spark = spark
        self._directory = directory
        self._messages = messages
        self._network = {"nameServer": nameserver}
        self.cases: dict[str, Callable[[], int]] = {
            "read": self._read,
            "stream": self._stream,
            "write exactly once": self._write,
            "archive, network": lambda: self._archive(nameserver=nameserver),
            "archive, files": lambda: self._archive(
                path=str(directory / "store"), broker_name="bench"
            ),
            "audit, CRC": self._audit,
            "report": self._report,
        }

    def _frame(self) -> "DataFrame":
        given = {**self._network, "subscribe": TOPICS}
        return self._spark.read.format("rocketmq").options(**given).load()

    def _read(self) -> int:
        return self._frame().count()

    def _stream(self) -> int:
        given = {**self._network, "subscribe": TOPICS, "startingOffsets": "earliest"}
        given["maxOffsetsPerTrigger"] = str(BATCH_OF_A_STREAM)
        with tempfile.TemporaryDirectory(dir=self._directory) as checkpoint:
            frame = self._spark.readStream.format("rocketmq").options(**given).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            return sum(each["numInputRows"] for each in query.recentProgress)

    def _write(self) -> int:
        given = {**self._network, "topic": TARGET, "delivery": "exactly-once", "sinkId": "scale"}
        frame = self._frame().select("body", "tags", "keys")
        frame.write.format("rocketmq").options(**given).mode("append").save()
        written = self._spark.read.format("rocketmq").options(
            **self._network, subscribe=TARGET, columns="queueId"
        )
        return written.load().count()

    def _archive(self, **source: Any) -> int:
        from rockhopper.pipeline.jobs.archiving.job import archive

        with tempfile.TemporaryDirectory(dir=self._directory) as target:
            topics = TOPICS.split(",")
            return archive(target, topics=topics, spark=self._spark, **source).rows

    def _audit(self) -> int:
        from rockhopper.pipeline.jobs.auditing.job import audit

        result = audit(str(self._directory / "store"), checks=["crc"], spark=self._spark)
        if not result.is_good:
            raise BenchError(f"the audit found something: {list(result.lines())}")
        return self._messages

    def _report(self) -> int:
        from rockhopper.pipeline.jobs.reporting.job import report

        with tempfile.TemporaryDirectory(dir=self._directory) as target:
            report(target, path=str(self._directory / "store"), spark=self._spark)
        return self._messages

    def run(self) -> Iterator[dict[str, Any]]:
        """Yield the resources that each case used."""
        for name, work in self.cases.items():
            with Meter() as meter:
                began = time.perf_counter()
                count = work()
                seconds = time.perf_counter() - began
            if count != self._messages:
                raise BenchError(f"{name}: {count:,} messages of {self._messages:,}")
            found = {"case": name, "messages": count, "seconds": round(seconds, 2)}
            yield found | {"cpu_s": round(meter.cpu_s, 2), "peaks_mb": meter.peaks_mb}


def measure(millions: int) -> None:
    """Print the results of one size, one line of JSON each."""
    from rockhopper import pipeline

    messages = millions * 1_000_000
    BUILD.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="scale-", dir=BUILD))
        )
        write_store(directory / "store", messages)
        kept = ("--set", "fileReservedTime=999999")  # the log's timestamps are old
        nameserver = stack.enter_context(broker_on(directory / "store", "--name", "bench", *kept))
        await_queues(nameserver, messages, (TARGET,))
        spark = pipeline.local_session("scale", **{"spark.driver.memory": "2g"})
        stack.callback(spark.stop)
        for found in Scale(spark, directory, nameserver, messages).run():
            print(json.dumps(found), flush=True)


def render(results: Sequence[dict[str, Any]]) -> str:
    """Return the table for people."""
    heading = ["case", "messages", "s", "CPU us a message"]
    rows = [heading + [f"{kind}, MB" for kind in KINDS]]
    for case in dict.fromkeys(each["case"] for each in results):
        for each in results:
            if each["case"] == case:
                cpu_us = each["cpu_s"] / each["messages"] * 1e6
                peaks = [f"{each['peaks_mb'].get(kind, 0):,}" for kind in KINDS]
                rows.append(
                    [
                        case,
                        f"{each['messages']:,}",
                        f"{each['seconds']:.1f}",
                        f"{cpu_us:.2f}",
                        *peaks,
                    ]
                )
    return table(rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all sizes, each in its own process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scale", description=__doc__)
    parser.add_argument("--millions", default="1,2,4,10", help="sizes, with commas")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.md and .json")
    options = parser.parse_args(arguments)
    if options.one:
        measure(options.one)
        return 0
    results: list[dict[str, Any]] = []
    for millions in options.millions.split(","):
        command = [sys.executable, "-m", "benchmarks.spark_scale", "--one", millions]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results += map(json.loads, done.stdout.splitlines())
        print(done.stdout, end="", file=sys.stderr, flush=True)
    print(render(results))
    if options.save:
        directory = Path(__file__).parent / "results"
        (directory / f"{options.save}.md").write_text(render(results))
        (directory / f"{options.save}.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
